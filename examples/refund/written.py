"""plan.json, written in code: the tools' own signatures check it, and each step comes behind those that it names."""

import json
import sys

from refund.tools import look_up, refund

from aetheris.sdk.plan_builder import PlanBuilder

plan = PlanBuilder()
order = plan.using(id="order").call(look_up, order="o-1")
plan.call(refund, order="o-1", amount=order.at("/paid"))
sys.stdout.write(json.dumps(plan.build(), indent=2) + "\n")
