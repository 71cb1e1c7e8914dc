"""Holds the emulator against botocore's service model: every response, and every member that is named anywhere.

A response must have the members that its shape requires, of the types, values and lengths that the shape has. Botocore
itself does not look so closely: it drops what it does not know and does not miss what is absent.
"""

import json
import re
from collections import Counter

# Members that live responses have and the model does not.
EXTRA = {"id", "buildPhaseOverrides", "roleConfiguration", "terminationReasonCode", "versionStateTimeBucket"}
# Errors that any AWS service answers before it looks at the operation.
COMMON = {
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "SerializationException",
}
KINDS = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "long": int,
    "timestamp": (int, float),
    "list": list,
    "map": dict,
    "structure": dict,
}


def misfits(shape, value, path=""):
    """What in `value`, as it is on the wire, does not fit the shape."""
    here = path or "the response"
    kind = shape.type_name
    if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{here}: {value!r} is no {kind}"
        return
    limits = shape.metadata
    size = value if kind in ("integer", "long") else len(value) if kind in ("string", "list", "map") else None
    if size is not None and not limits.get("min", size) <= size <= limits.get("max", size):
        yield f"{here}: {value!r} is not within {limits}"
    if kind == "string":
        if shape.enum and value not in shape.enum:
            yield f"{here}: {value!r} is none of {shape.enum}"
        pattern = limits.get("pattern", "")
        # Python has no Unicode classes in patterns.
        if pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
            yield f"{here}: {value!r} does not match {pattern}"
    elif kind == "structure":
        given = {name for name, member in value.items() if member is not None}
        missing = set(shape.required_members) - given
        if missing:
            yield f"{here}: without {sorted(missing)}"
        unknown = set(value) - set(shape.members) - EXTRA
        if unknown:
            yield f"{here}: the model has no {sorted(unknown)}"
        if shape.is_tagged_union and len(given) != 1:
            yield f"{here}: {value!r} is no union"
        for name in given & set(shape.members):
            yield from misfits(shape.members[name], value[name], f"{path}.{name}")
    elif kind == "list":
        for at, item in enumerate(value):
            yield from misfits(shape.member, item, f"{path}[{at}]")
    elif kind == "map":
        for name, item in value.items():
            yield from misfits(shape.key, name, f"{path} key")
            yield from misfits(shape.value, item, f"{path}.{name}")


class Witness:
    """Sees every response of a client, and counts them by operation and error."""

    def __init__(self, client):
        self.model = client.meta.service_model
        self.seen = Counter()
        client.meta.events.register("response-received.lambda-microvms.*", self.look)

    def look(self, event_name, response_dict=None, **_):
        # None if the connection broke.
        if response_dict is None:
            return
        operation = self.model.operation_model(event_name.rsplit(".", 1)[1])
        headers = {name.lower(): value for name, value in response_dict["headers"].items()}
        status, body = response_dict["status_code"], response_dict["body"]
        # What the fault script answers has no id.
        if "x-amzn-requestid" not in headers:
            return
        if status >= 300:
            return self.look_at_error(operation, headers, status, json.loads(body))
        assert status == operation.http["responseCode"], f"{operation.name}: {status}"
        if operation.output_shape is None:
            assert body == b"", f"{operation.name}: {body!r}"
        else:
            found = list(misfits(operation.output_shape, json.loads(body)))
            assert not found, f"{operation.name}: {found} in {body.decode()}"
        self.seen[operation.name] += 1

    def look_at_error(self, operation, headers, status, body):
        name = headers["x-amzn-errortype"]
        if name not in COMMON:
            shapes = {shape.name: shape for shape in operation.error_shapes}
            assert name in shapes, f"{operation.name} cannot answer {name}"
            shape = shapes[name]
            assert status == shape.metadata["error"]["httpStatusCode"], f"{name}: {status}"
            of_body = {member for member, of in shape.members.items() if "location" not in of.serialization}
            assert set(body) == of_body, f"{name}: {body}"
        assert body["message"], f"{name} says nothing"
        self.seen[name] += 1


def names(shape, prefix=""):
    """All members below a structure, as `parent.child`; members of lists as `parent[].child`."""
    for name, member in shape.members.items():
        yield prefix + name
        yield from below(member, prefix + name)


def below(shape, path):
    if shape.type_name == "structure":
        yield from names(shape, f"{path}.")
    elif shape.type_name == "list":
        yield from below(shape.member, f"{path}[]")


def members(operation, side):
    """The members of an operation's request or response, wherever they are on the wire."""
    shape = operation.input_shape if side == "request" else operation.output_shape
    return set(names(shape)) if shape else set()


def check_table(model, table):
    """The emulator's table of operations and the model are one."""
    assert set(table) == set(model.operation_names), set(table) ^ set(model.operation_names)
    for name, entry in table.items():
        operation = model.operation_model(name)
        http = operation.http
        same = (entry["method"], entry["path"], entry["status"])
        assert same == (http["method"], http["requestUri"], http["responseCode"]), (name, same, http)
        by_place = {"uri": set(), "querystring": set(), None: set()}
        for member, shape in (operation.input_shape.members if operation.input_shape else {}).items():
            place = shape.serialization.get("location")
            on_the_wire = shape.serialization.get("name", member)
            by_place[place].add(on_the_wire)
            if place is None:
                by_place[None] |= set(below(shape, member))
        assert set(re.findall(r"{(\w+)}", entry["path"])) == by_place["uri"], name
        assert set(entry["query"]) == by_place["querystring"], (name, set(entry["query"]) ^ by_place["querystring"])
        assert set(entry["body"]) == by_place[None], (name, set(entry["body"]) ^ by_place[None])


def check_list(model, text):
    """Lines of `Operation request|response member`, comments after `#`: the model has all of them. Returns how many."""
    count = 0
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        name, side, member = words
        assert side in ("request", "response"), line
        assert name in model.operation_names, line
        assert member in members(model.operation_model(name), side), f"the model has no {line}"
        count += 1
    return count
