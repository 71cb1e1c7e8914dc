"""Compares hand-written .proto files with the descriptors in the official Python package: every method with its messages and
its streams, every message, every field with its number, type and label, every value of an enum.

    python drift.py FILE.proto...

Files of one directory may import each other. What a file leaves out is not looked at.
"""

import os
import sys
import tempfile
from importlib.resources import files

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from grpc_tools import protoc

# Their import fills the pool.
from modal_proto import api_pb2, task_command_router_pb2  # noqa: F401

from google.protobuf import descriptor_pool

POOL = descriptor_pool.Default()
Field = descriptor_pb2.FieldDescriptorProto


def compiled(paths):
    includes = dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in paths)
    with tempfile.NamedTemporaryFile() as output:
        arguments = ["protoc", f"--descriptor_set_out={output.name}", f"-I{files('grpc_tools') / '_proto'}"]
        arguments += [f"-I{directory}" for directory in includes]
        if protoc.main(arguments + [os.path.abspath(path) for path in paths]) != 0:
            sys.exit("drift: protoc refuses the files")
        return descriptor_pb2.FileDescriptorSet.FromString(output.read())


compared = 0
differences = []


def same(what, ours, theirs):
    global compared
    compared += 1
    if ours != theirs:
        differences.append(f"{what}: {ours}, but the package says {theirs}")


def found(find, name):
    try:
        return find(name)
    except KeyError:
        differences.append(f"{name}: not in the package")


def message(name, ours):
    theirs = found(POOL.FindMessageTypeByName, name)
    if theirs is None:
        return
    for field in ours.field:
        other = theirs.fields_by_name.get(field.name)
        if other is None:
            differences.append(f"{name}.{field.name}: not in the package")
            continue
        named = other.message_type or other.enum_type
        presence = field.proto3_optional or field.HasField("oneof_index") or field.type == Field.TYPE_MESSAGE
        same(
            f"{name}.{field.name}",
            (field.number, field.type, field.label == Field.LABEL_REPEATED, field.type_name.lstrip(".")),
            (other.number, other.type, other.is_repeated, named.full_name if named else ""),
        )
        if not other.is_repeated:
            same(f"presence of {name}.{field.name}", presence, other.has_presence)
        ours_oneof = ours.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        same(f"oneof of {name}.{field.name}", ours_oneof, other.containing_oneof.name if other.containing_oneof else None)
    for nested in ours.nested_type:
        message(f"{name}.{nested.name}", nested)
    for nested in ours.enum_type:
        enum(f"{name}.{nested.name}", nested)


def enum(name, ours):
    theirs = found(POOL.FindEnumTypeByName, name)
    for value in ours.value if theirs else ():
        other = theirs.values_by_name.get(value.name)
        same(f"{name}.{value.name}", value.number, other.number if other else None)


def service(name, ours):
    theirs = found(POOL.FindServiceByName, name)
    for method in ours.method if theirs else ():
        other = theirs.methods_by_name.get(method.name)
        if other is None:
            differences.append(f"{name}/{method.name}: not in the package")
            continue
        same(
            f"{name}/{method.name}",
            (method.input_type[1:], method.output_type[1:], method.client_streaming, method.server_streaming),
            (other.input_type.full_name, other.output_type.full_name, other.client_streaming, other.server_streaming),
        )


assert FieldDescriptor.TYPE_MESSAGE == Field.TYPE_MESSAGE
for file in compiled(sys.argv[1:]).file:
    for each in file.message_type:
        message(f"{file.package}.{each.name}", each)
    for each in file.enum_type:
        enum(f"{file.package}.{each.name}", each)
    for each in file.service:
        service(f"{file.package}.{each.name}", each)
if compared == 0:
    sys.exit("drift: nothing was compared")
if differences:
    sys.exit("drift: " + "\n       ".join(differences))
print(f"{' '.join(sys.argv[1:])}: {compared} comparisons with the official package, no difference")
