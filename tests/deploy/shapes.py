"""The custom resources that we use, as strict JSON Schemas of the fields that we use.

Written by hand from the operators' references: an operator's own schema knows more, and a cluster asks it.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 1}
FLAG: Schema = {"type": "boolean"}


def fields(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields and no others."""
    known = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": known, "additionalProperties": False}


def one_of(*values: str) -> Schema:
    """One of these texts."""
    return {"enum": list(values)}


def some(item: Schema) -> Schema:
    """A list that is not empty."""
    return {"type": "array", "minItems": 1, "items": item}


def _texts() -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}}


_ANY: Schema = {"type": "object"}
_METADATA = fields({"name": TEXT, "namespace": TEXT}, {"labels": _texts(), "annotations": _texts()})
_ACL = fields(
    {
        "resource": fields(
            {"type": one_of("topic", "group"), "name": TEXT, "patternType": one_of("literal", "prefix")}
        ),
        "operations": some(one_of("Read", "Write", "Describe", "DescribeConfigs")),
        "host": TEXT,
    }
)
_LISTENER = fields(
    {"name": TEXT, "port": COUNT, "type": one_of("internal"), "tls": FLAG, "authentication": fields({"type": TEXT})}
)
_RESOURCES = fields({"requests": _texts(), "limits": _texts()})
_VOLUME = fields(
    {"id": {"type": "integer"}, "type": one_of("persistent-claim"), "size": TEXT},
    {"deleteClaim": FLAG, "kraftMetadata": one_of("shared")},
)

SPECS: Mapping[tuple[str, str], Schema] = {
    ("kafka.strimzi.io/v1beta2", "KafkaTopic"): fields({"partitions": COUNT, "replicas": COUNT, "config": _texts()}),
    ("kafka.strimzi.io/v1beta2", "KafkaUser"): fields(
        {
            "authentication": fields({"type": one_of("tls")}),
            "authorization": fields({"type": one_of("simple"), "acls": some(_ACL)}),
        }
    ),
    ("kafka.strimzi.io/v1beta2", "KafkaNodePool"): fields(
        {
            "replicas": COUNT,
            "roles": some(one_of("controller", "broker")),
            "storage": fields({"type": one_of("jbod"), "volumes": some(_VOLUME)}),
        },
        {"resources": _RESOURCES},
    ),
    ("kafka.strimzi.io/v1beta2", "Kafka"): fields(
        {
            "kafka": fields(
                {"listeners": some(_LISTENER), "authorization": fields({"type": one_of("simple")}), "config": _ANY},
                {"rack": fields({"topologyKey": TEXT})},
            ),
            "entityOperator": fields({"topicOperator": _ANY, "userOperator": _ANY}),
        }
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): fields(
        {
            "scaleTargetRef": fields({"apiVersion": TEXT, "kind": TEXT, "name": TEXT}),
            "minReplicaCount": COUNT,
            "maxReplicaCount": COUNT,
            "triggers": some(fields({"type": one_of("prometheus"), "metadata": _texts()})),
        },
        {
            "cooldownPeriod": COUNT,
            "fallback": fields({"failureThreshold": COUNT, "replicas": COUNT}),
            "advanced": fields({"horizontalPodAutoscalerConfig": fields({"behavior": _ANY})}),
        },
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): fields(
        {
            "groups": some(
                fields(
                    {
                        "name": TEXT,
                        "rules": some(
                            fields(
                                {"alert": TEXT, "expr": TEXT, "labels": _texts(), "annotations": _texts()},
                                {"for": TEXT},
                            )
                        ),
                    },
                    {"interval": TEXT},
                )
            )
        }
    ),
}


def schema(api_version: str, kind: str) -> Schema:
    """The whole object's schema.

    Raises: KeyError, for a kind that is not here.
    """
    spec = SPECS[api_version, kind]
    return fields({"apiVersion": TEXT, "kind": TEXT, "metadata": _METADATA, "spec": spec})
