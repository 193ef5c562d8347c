#!/usr/bin/env python3
"""Check an evidence bundle of Aetheris with this one file and Python 3.8 or newer; one call's proof with verify.py.
In this order: the envelope, before it is parsed; the tree over all sealed records; their seal; its place in the log
of seals, and who witnessed that; that calls took effect at most once. Ends with 0 if all holds, else 1; 2: misused."""
import argparse, base64, datetime, decimal, functools, hashlib, json, re, struct, sys, zlib
NOT_CHECKED = """not checked here, but by `aetheris verify`: who may approve; policies, freezes, pauses, cancels, doubt,
repeats, revocations; plans, identities; what is undone, adopted, continued, begun, retold. By nobody: that it is all"""
STATEMENT, VIAS = "https://in-toto.io/Statement/v1 urn:aetheris:job-evidence%s:v1", ("probe", "human", "ledger")
MAX_BYTES, MAX_VALUES, NOW = 256 << 20, 4_000_000, datetime.datetime.now(datetime.timezone.utc)
ENVELOPE = rb'\{"payload":"([\w+/=]+)","payloadType":"application/vnd\.in-toto\+json","signatures":(\[.{1,65000}\])\}'
END, NAMES = "tool_invocation_finished", "job_id node_id idempotency_key invocation_id tool_version args_hash".split()
CALLS = re.compile("plan_generated|call_planned|policy_allowed|approval_decided|tool_invocation_(started|finished)")
ENDS, INSIDE = ("job_completed", "job_failed", "job_cancelled"), {dict: dict.values, list: iter}
SIGNED_BY = {**dict.fromkeys(("job_created", "plan_generated", *ENDS), "planner"), "job_sealed": "auditor"}
SIGNED_BY.update(dict.fromkeys(("policy_allowed", "approval_decided", *zip([END] * 3, VIAS)), "ledger"))
class Refused(Exception): pass  # Refused(rule, offset)
MALFORMED = (Refused, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)
def require(holds, rule, offset=None):
    if not holds: raise Refused(rule, offset)
def once(pairs): return dict(pairs) if len(dict(pairs)) == len(pairs) else require(False, "undecodable")
def real(text): return float(text) if re.match(r"-?\d{1,4300}(?!\d)", text) else require(False, "undecodable")
def parse(data): return json.loads(data.decode(), object_pairs_hook=once, parse_constant=int, parse_float=real)
def depth(one): return type(one) in INSIDE and 1 + max(map(depth, INSIDE[type(one)](one)), default=0)
def sha256(data): return hashlib.sha256(data).digest()
def unbase64(text): return base64.b64decode(text, validate=True)
def moment(text): return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) - NOW  # it names its zone
def pae(kind, payload): return b"DSSEv1 %d application/vnd.%b %d %b" % (16 + len(kind), kind, len(payload), payload)
def canonical(value):  # RFC 8785.
    if isinstance(value, list): return "[%s]" % ",".join(map(canonical, value))
    if isinstance(value, dict):
        parts = sorted(value.items(), key=lambda part: part[0].encode("utf-16-be"))
        return "{%s}" % ",".join(canonical(name) + ":" + canonical(one) for name, one in parts)
    require(abs(value) < 2**53 if isinstance(value, int) else value not in (1e999, -1e999), "not_canonical")
    if isinstance(value, float):  # as JavaScript prints it
        exact = decimal.Decimal(repr(value or 0.0)).normalize()
        return "{:{}}".format(exact, "f" if -6 <= exact.adjusted() < 21 else "e")
    return json.dumps(value, ensure_ascii=False)
# Ed25519 (RFC 8032): a point is (x, y, z, t) with x/z and y/z on the curve and t = xy/z.
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT_OF_MINUS_1 = -121665 * pow(121666, P - 2, P) % P, pow(2, (P - 1) // 4, P)
def add(one, other):
    (x1, y1, z1, t1), (x2, y2, z2, t2) = one, other
    a, b, c, d = (y1 - x1) * (y2 - x2), (y1 + x1) * (y2 + x2), 2 * D * t1 % P * t2, 2 * z1 * z2
    e, f, g, h = (b - a) % P, (d - c) % P, (d + c) % P, (b + a) % P
    return e * f % P, g * h % P, f * g % P, e * h % P
def point(encoded, sign):
    y = int.from_bytes(encoded, "little") & (1 << 255) - 1
    u, v = y * y - 1, D * y * y + 1
    x = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    x = x if (v * x * x - u) % P == 0 else x * ROOT_OF_MINUS_1 % P
    require(len(encoded) == 32 and y < P and (v * x * x - u) % P == 0 and (x or not encoded[31] >> 7), "bad_key")
    x = (x if x & 1 == encoded[31] >> 7 else -x) * sign % P
    return x, y, 1, x * y % P
BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"), 1)
@functools.lru_cache(maxsize=None)
def is_signed(key, signature, message):  # is sB - hA = R? A batch of records has one signature, computed once
    (r, s), hashed = struct.unpack("32s32s", signature), hashlib.sha512(signature[:32] + key + message).digest()
    s, h, minus, total = *(int.from_bytes(one, "little") for one in (s, hashed)), point(key, -1), (0, 1, 1, 0)
    steps = {"10": BASE, "01": minus, "11": add(BASE, minus)}
    for bits in map("".join, zip("{:0256b}".format(s), "{:0256b}".format(h % ORDER))):
        total = add(add(total, total), steps[bits]) if bits in steps else add(total, total)
    x, y, inverse = total[0], total[1], pow(total[2], P - 2, P)
    return s < ORDER and (y * inverse % P | (x * inverse % P & 1) << 255).to_bytes(32, "little") == r
def grow(one): return [one] + (grow([sha256(b"\1" + a + b) for a, b in zip(one[::2], one[1::2])]) if one[1:] else [])
def tree_root(levels, count):  # over the first so many leaves, of the levels that grow from all: RFC 9162, 2.1.1
    parts = [level[(count >> height) - 1] for height, level in enumerate(levels) if count >> height & 1]
    return functools.reduce(lambda right, left: sha256(b"\1" + left + right), parts)
def climb(found, index, size, path):  # the root that a path leads to from a leaf: RFC 9162, 2.1.3
    require(0 <= index < size and (size > 1) == bool(path), "bad_proof")
    if size == 1: return found
    half = 1 << (size - 1).bit_length() - 1
    if index < half: return sha256(b"\1" + climb(found, index, half, path[:-1]) + path[-1])
    return sha256(b"\1" + path[-1] + climb(found, index - half, size - half, path[:-1]))
class Key:  # A public key. What it signs counts from its begin on, up to its ends.
    def __init__(self, entry):
        der = unbase64("".join(entry["public_key"].split("-----")[2].split()))
        require(len(der) == 44 and der[:12] == bytes.fromhex("302a300506032b6570032100"), "bad_key")
        self.raw, self.id, self.use = der[12:], sha256(der[12:]).hex()[:16], entry.get("use")
        self.begin, *self.ends = map(entry.get, ("valid_from", "valid_until", "revoked_at"))
    def counts(self, use, at=NOW - NOW):
        ended = any(end and moment(end) <= at for end in self.ends)
        return self.use in (None, use) and not ended and (not self.begin or moment(self.begin) <= at)
def read_keys(pem):
    return once([(k.id, k) for k in map(Key, parse(pem.encode())["keys"] if "{" in pem[:9] else [{"public_key": pem}])])
def unzip(data):  # The envelope in a zip of one form, to the last byte; a hundred times as large at most.
    method, crc, packed_size, size = struct.unpack_from("<H", data, 8) + struct.unpack_from("<3I", data, 14)
    about, packed = (0, method, 0, 33, crc, packed_size, size, 16, 0), data[46:46 + packed_size]
    local = struct.pack("<4s5H3I2H16s", b"PK\3\4", 20, *about, b"bundle.dsse.json") + packed
    central = struct.pack("<4s6H3I5H2I16s", b"PK\1\2", 788, 20, *about, 0, 0, 0, 33188 << 16, 0, b"bundle.dsse.json")
    require(data == local + central + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 62, len(local), 0), "bad_zip")
    require(method in (0, 8) and size <= min(MAX_BYTES, 100 * packed_size), "bad_zip")
    inflater = zlib.decompressobj(-15)
    found = inflater.decompress(packed, size + 1) if method else packed
    return require(len(found) == size and zlib.crc32(found) == crc and (not method or inflater.eof), "bad_zip") or found
def open_envelope(data, keys):  # the statement that one of the keys signed, or else one of those in it; and the keys
    found = re.fullmatch(ENVELOPE, data)
    require(found, "bad_envelope")
    payload, signatures, data, found = unbase64(found[1]), parse(found[2]), None, None
    require(sum(map(payload.count, (b",", b"[", b"{"))) <= MAX_VALUES, "bad_statement")
    keys = keys or read_keys(json.dumps({"keys": parse(payload)["predicate"]["keys"]}))
    ours = [(keys[one["keyid"]], unbase64(one["sig"])) for one in signatures if one["keyid"] in keys]
    require(any(key.counts("seal") for key, _ in ours), "envelope_unknown_key")
    require(all(is_signed(key.raw, one, pae(b"in-toto+json", payload)) for key, one in ours), "envelope_signature")
    return require(depth(one := parse(payload)) <= 256, "bad_statement") or one, keys
def readable(value):  # an object that every reader reads; {} for another: it says nothing, and no seal is over it
    try:
        return one if json.dumps(one := parse(value), ensure_ascii=0).encode()[:1] == b"{" and depth(one) <= 128 else {}
    except MALFORMED: return {}
class Record:  # as it lies in the log; its leaf of the tree is over four headers and the value
    def __init__(self, one):
        headers, self.offset = [(name, unbase64(value)) for name, value in one["headers"]], one["offset"]
        self.value, self.log_key = unbase64(one.get("value", "")), one.get("key") and unbase64(one["key"])
        said, self.shown, leaf, most = one.get("value_sha256"), "value" in one, b"\0", 1  # the first stands for a value
        self.hash = sha256(self.value) if self.shown else bytes.fromhex(re.fullmatch("[0-9a-f]{64}", said)[0])
        for name in ("ce_id", "ce_type", "ce_time", "ce_source"):
            values = [value for other, value in headers if other == name]
            most, none = max(most, len(values)), b"\xff\xff\xff\xfe" if values else b"\xff\xff\xff\xff"
            leaf += struct.pack(">I", len(values[0])) + values[0] if len(values) == 1 else none
        self.leaf, kind = sha256(leaf + b"\0\0\0\x20" + self.hash), dict(headers).get("ce_type", b"")
        named = re.fullmatch(rb"io\.aetheris\.(plan_generated(?=\.v2)|[a-z0-9_]+(?=\.v1))\.v.", kind)
        self.body = {} if most > 1 else readable(self.value) if self.shown else {"certificate": one.get("certificate")}
        self.type = named[1].decode() if named and self.body else ""
def certify(certificate, root, certified):  # takes a key that the root has certified for a service
    try:
        stated = {name: certificate[name] for name in ("service", "public_key", "not_before", "not_after", "root")}
        key, by = unbase64(stated["public_key"]), unbase64(stated["root"])
        said = pae(b"aetheris.certificate+json", canonical(stated).encode())
        if sha256(by).hex() == root and is_signed(by, unbase64(certificate["signature"]), said):
            certified.setdefault(sha256(key).hex(), (stated["service"], key))
    except MALFORMED: pass
def is_signed_by(service, record, root, born, certified):  # by a key that the root certifies, in its place (ADR 9)
    value, _, tail = record.value.rpartition(b',"sig":')
    try:
        signature = parse(tail[:-1])
        place = {"born": born, "installation": root, "key": record.body["job_id"], "sequence": None,
                 "topic": "aetheris.jobs.events.v1", "type": record.type}
        leaf = sha256(b"\0" + pae(b"aetheris.record", canonical(place).encode() + b"\n" + value + b"}"))
        path = re.findall(b"(?s).{32}", unbase64(signature.get("path", "")))
        top = climb(leaf, signature.get("index", 0), signature.get("size", 1), path)
        by, key = certified[signature["key"]]
        return by == service and is_signed(key, unbase64(signature["value"]), pae(b"aetheris.records", top))
    except MALFORMED: return False
def check_logged(proof, seal, keys, witnesses, quorum):  # a checkpoint (C2SP) has it, by a key and enough witnesses
    head, text, tail = re.fullmatch("(?s)(.+?)\n\n(.+)\n\n(.*)", proof).groups()
    (origin, size, root), (index, *path) = text.split("\n")[:3], head.partition("\nindex ")[2].split("\n")
    lines, said = [(by, unbase64(one)) for by, one in re.findall(r"\u2014 (\S+) (\S+)\n", tail)], text.encode() + b"\n"
    def signs(name, kind, raw):  # a checkpoint's key (1), or a witness's, which says when (4)
        key_id, ours = sha256(name.encode() + b"\n" + kind + raw)[:4], [one for by, one in lines if by == name]
        def when(one): return b"cosignature/v1\ntime %d\n" % int.from_bytes(one[4:12], "big") if kind == b"\4" else b""
        return any(one[:4] == key_id and is_signed(raw, one[-64:], when(one) + said) for one in ours)
    require(any(signs(origin, b"\1", key.raw) and key.counts("log") for key in keys.values()), "checkpoint_unknown_key")
    require(sum(signs(name, b"\4", raw) for name, raw in witnesses.items()) >= quorum, "no_quorum")
    top = climb(sha256(b"\0" + sha256(seal)), int(index), int(size), list(map(unbase64, path)))
    require(top == unbase64(root), "not_included")
def check_calls(records, blobs):  # what took effect had started, was allowed, was so once, and gave its result
    tools, nodes, planned, words, allowed, starts, done, plans = {}, {}, {}, {}, set(), {}, {}, 0
    for record in records:
        said, kind, at = record.body, record.type, record.offset
        job, node, key, nonce, version, args = (str(said.get(name)) for name in NAMES)
        word = bytes.fromhex(said["word"]) if re.fullmatch("[0-9a-f]{64}", str(said.get("word"))) else b""
        if kind == "plan_generated" and repr(said.get("revision")) == str(plans):
            part, plans = said["diff" if plans else "task_graph"], plans + 1
            tools.update(part.get("tools", {}))
            nodes.update({node["id"]: node for node in part["nodes"]})
        elif kind == "call_planned" and words.get(nonce) == sha256(b"call1\0" + word).hex():  # by its body, in turn
            words[nonce], planned[node] = word.hex(), said["entry"]
        elif kind == "policy_allowed" or (kind == "approval_decided" and said.get("decision") == "approve"):
            allowed.add((key, version) if kind == "policy_allowed" else (key, version, args))
        elif kind == "tool_invocation_started" and (entry := nodes.get(node, planned.get(node))):
            own, tool = "aetheris:%s:%s:%s" % (job, node, said.get("attempt_id")), tools.get(entry.get("tool"), {})
            words.setdefault(nonce, said.get("plans"))
            final = entry.get("irreversible") or tool.get("irreversible")
            if said.get("external_key") == own and (not final or {(key, version), (key, version, args)} & allowed):
                same = {"pure": "", "idempotent": own}.get(tool.get("effect_class"), nonce)
                starts.setdefault((node, key, nonce), same if tool or entry.get("kind", "tool") == "tool" else "")
        elif kind == END and said.get("outcome") in ("success", "compensatable_failure"):
            name = sha256(b"nonce1\0" + sha256(b"nonce1\0" + sha256(b"nonce1\0" + word))).hex()
            if said.get("via") not in ("probe", "human") and name != nonce: continue  # nobody's, without its word
            same = starts.get((node, key, nonce))
            require(same is not None, "success_without_valid_start", at)
            large = (said.get("result_ref") or {}).get("sha256")
            if not large or blobs is not None:  # a redacted bundle has no large results
                require(not large or sha256(blobs[large]).hex() == large, "blob_mismatch", at)
                result = parse(blobs[large]) if large else said.get("result")
                require(sha256(canonical(result).encode()).hex() == said["output_hash"], "output_hash_mismatch", at)
            require(done.setdefault(key, same) == same, "second_success", at)
def is_seal(said, keys, levels, at):  # a key signed it that counts at its time, over the first of what lies before it
    try:
        key, stated = keys[said["key_id"]], {name: said[name] for name in {*said} - {"signature", "certificate", "sig"}}
        signed = is_signed(key.raw, unbase64(said["signature"]), pae(b"aetheris.seal+json", canonical(stated).encode()))
        over = said["event_count"] if signed and key.counts("seal", moment(said["sealed_at"])) else None
        return 0 < over <= at and (said["chain"], said["tree"]) == (2, tree_root(levels, over).hex())
    except MALFORMED: return False
def check_job(one, root, keys, witnesses, quorum, redacted):  # what its seal covers; of what amends that, ends of tries
    records = list(map(Record, one.pop("records")))
    born, certified, seal, first, count, counted, levels = None, {}, None, 0, 0, [], grow([r.leaf for r in records])
    for at, record in enumerate(records):
        said, creates = record.body, record.type == "job_created" and (not redacted or one["creation"] == at)
        root = root or ((said if record.shown else one).get("installation") if creates else None)
        certify(said.get("certificate"), root, certified)
        by = record.shown and (SIGNED_BY.get(record.type) or SIGNED_BY.get((record.type, str(said.get("via")))))
        if by and root and not is_signed_by(by, record, root, None if creates else born, certified): continue
        born = born or (record.hash.hex() if creates else None)
        counted.append((at, record))
        follows = record.shown and record.type == "job_sealed" and said.get("amends") == (seal and seal.hash.hex())
        if follows and is_seal(said, keys, levels, at) and said["event_count"] > count:
            seal, first, count = record, first or said["event_count"], said["event_count"]
    require(seal, "not_sealed")
    require(redacted or all(each.shown for each in records), "bad_statement")
    offsets, sealed = [r.offset for r in records], [r for i, r in counted if i < first or i < count and r.type == END]
    require(offsets == sorted(set(offsets)) and {*map(type, offsets)} == {int} and offsets[0] >= 0, "out_of_order")
    require(all(each.body for each in sealed), "undecodable")
    require({each.body["job_id"] for each in (*sealed, seal) if each.shown} <= {one["job_id"]}, "foreign_record")
    require({each.log_key for each in records} <= {one["job_id"].encode(), None}, "key_mismatch")
    require(born and "%s %r" % (sealed[0].type, sealed[0].body.get("rules", 1)) == "job_created 1", "not_born")
    require(any(record.type in ENDS for record in sealed), "sealed_unfinished", seal.offset)
    check_logged(one["inclusion"], seal.value, keys, witnesses, quorum)
    left_out = [each.type for each in sealed if not each.shown]
    called = not any(map(CALLS.fullmatch, left_out))
    if called: check_calls(sealed, None if redacted else {name: unbase64(blob) for name, blob in one["blobs"].items()})
    gaps = ", ".join("%d %s" % (left_out.count(kind), kind) for kind in sorted({*left_out})) or "no record"
    line, said = "%s, %d records, sealed %s" % (one["job_id"], count, seal.body["sealed_at"]), seal.body
    if redacted: line += "; left out: %s; calls%s checked" % (gaps, "" if called else " not")
    return "holds: " + ascii(line)[1:-1], {"aetherisEventChain": said["root"], "aetherisEventTree": said["tree"]}
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=argparse.FileType("rb"))
    parser.add_argument("--public-key", type=argparse.FileType("r"), help="in PEM, or a JSON file of keys with times")
    for flag in ("--self-signed", "--redacted"): parser.add_argument(flag, action="store_true")
    parser.add_argument("--installation", metavar="KEY_ID", help="of the services' root")
    parser.add_argument("--witness", metavar="VKEY", action="append", default=[], help="a witness's key (C2SP)")
    parser.add_argument("--quorum", metavar="N", type=int, help="how many of them; else all")
    given = parser.parse_args()
    try:
        witnesses = once([(name, unbase64(raw)[1:]) for name, _, raw in (one.split("+", 2) for one in given.witness)])
        quorum = len(given.witness) if given.quorum is None else given.quorum
        require(len(set(witnesses.values())) == len(witnesses) >= quorum >= 0, "bad_witnesses")
        trusted = read_keys(given.public_key.read()) if given.public_key else None
        statement, keys = open_envelope(unzip(given.bundle.read(MAX_BYTES + 1024)), trusted)
        jobs = [statement["predicate"], *statement["predicate"].get("continued", [])]
        redacted, said = "redaction" in jobs[0], "%(_type)s %(predicateType)s" % statement
        require(said == STATEMENT % ("-redacted" * redacted), "bad_statement")
        require(given.redacted >= redacted, "redacted")
        lines, digests = zip(*(check_job(one, given.installation, keys, witnesses, quorum, redacted) for one in jobs))
        require(statement["subject"] == [{"name": jobs[0]["job_id"], "digest": digests[0]}], "subject_differs")
    except (*MALFORMED, zlib.error) as error:
        return "refused: %s (offset %r)" % error.args if isinstance(error, Refused) else "refused: malformed"
    print(*lines, NOT_CHECKED, sep="\n")
    return 0 if trusted or given.self_signed else "unchanged since sealed by whoever holds these keys: no --public-key"
if __name__ == "__main__": sys.exit(main())
