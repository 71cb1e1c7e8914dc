"""Checks the controller's files with those who define them: the component with the official Polyaxon package's parser and compiler, and with
the real server where SERVER=real; the Kubernetes manifests with the fields that the official Kubernetes client knows.
"""

import os
import pathlib

import yaml
from kubernetes import client as kubernetes
from polyaxon._compiler.contexts import resolve_contexts
from polyaxon._polyaxonfile import CompiledOperationSpecification, OperationSpecification, check_polyaxonfile

CONTROLLER = pathlib.Path(__file__).parents[3] / "controller"
COMPONENT = str(CONTROLLER / "polyaxon.yaml")
PARAMS = {"project": "acme/sandboxes", "policy": "fresh,reuse", "repetitions": 7, "profile": "small"}
ARGUMENTS = ["fixture", "--backend=polyaxon", "--track=polyaxon", "--mode=fresh,reuse", "--repetitions=7", "--profile=small"]


def equal(got, expected):
    assert got == expected, f"\n     got {got!r}\nexpected {expected!r}"


def operation(params):
    return check_polyaxonfile(polyaxonfile=COMPONENT, params=params, is_cli=False)


def compiled(params):
    """As an agent compiles it before it makes the pod."""
    result, given = OperationSpecification.compile_operation_with_params(operation(params))
    result = CompiledOperationSpecification.apply_params(result, params=given)
    result = CompiledOperationSpecification.apply_operation_contexts(result)
    contexts = resolve_contexts(
        namespace="polyaxon",
        owner_name="acme",
        project_name="control",
        project_uuid="p" * 32,
        run_uuid="a" * 32,
        run_name="n",
        run_path="a" * 32,
        compiled_operation=result,
        connection_by_names={},
        artifacts_store=None,
        iteration=None,
        created_at=None,
        compiled_at=None,
    )
    return CompiledOperationSpecification.apply_runtime_contexts(result, contexts=contexts)


def component():
    result = compiled(PARAMS)
    container = result.run.container
    equal(container.command, ["sandbox-bench"])
    equal(container.args[: len(ARGUMENTS)], ARGUMENTS)
    results = container.args[-1]
    assert results.startswith("--results=/plx-context/artifacts/") and results.endswith("/outputs"), results
    variables = {one["name"] if isinstance(one, dict) else one.name: one for one in container.env}
    value = variables["SANDBOX_BENCH_SETTINGS"]
    equal(value["value"] if isinstance(value, dict) else value.value, "backend.polyaxon.project = 'acme/sandboxes'")
    equal((result.run.kind, result.termination.max_retries, result.plugins.auth), ("job", 0, True))
    # The target project has no default: nobody shall make sandboxes where they did not mean to.
    try:
        compiled({})
    except Exception as error:
        assert "non optional inputs" in str(error.__cause__), error.__cause__
    else:
        raise AssertionError("it compiles without a project")


def at_the_server():
    from polyaxon.client import ClientConfig, PolyaxonClient, RunClient

    owner, project = os.environ["POLYAXON_EMULATOR_PROJECT"].split("/")
    config = ClientConfig(host=os.environ["POLYAXON_HOST"], token=os.environ["POLYAXON_AUTH_TOKEN"])
    run = RunClient(owner=owner, project=project, client=PolyaxonClient(config=config), manual_exceptions_handling=True)
    created = run.create(name="controller", content=operation(PARAMS).to_json())
    run = RunClient(
        owner=owner, project=project, run_uuid=created.uuid, client=run.client, manual_exceptions_handling=True
    )
    run.refresh_data()
    equal((run.run_data.kind, run.run_data.inputs["policy"], run.run_data.inputs["repetitions"]), ("job", "fresh,reuse", 7))
    run.stop()


def unknown_fields(value, kind, place):
    """Fields that the type `kind` of the Kubernetes API does not have."""
    if kind.startswith("list["):
        return [wrong for one in value for wrong in unknown_fields(one, kind[5:-1], place)]
    model = getattr(kubernetes, kind, None)
    if model is None or not isinstance(value, dict):
        return []
    names = {wire: name for name, wire in model.attribute_map.items()}
    wrong = [f"{place}.{field}" for field in value if field not in names]
    for field in value.keys() & names.keys():
        wrong += unknown_fields(value[field], model.openapi_types[names[field]], f"{place}.{field}")
    return wrong


def manifests():
    documents = list(yaml.safe_load_all((CONTROLLER / "job.yaml").read_text()))
    kinds = {"ServiceAccount", "ConfigMap", "PersistentVolumeClaim", "Job", "NetworkPolicy"}
    equal({document["kind"] for document in documents}, kinds)
    for document in documents:
        equal(unknown_fields(document, f"V1{document['kind']}", document["kind"]), [])
    job = next(document for document in documents if document["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    # What "restricted" of the Pod Security Standards asks for, and no way to the cluster's own API.
    [container] = pod["containers"]
    equal((pod["automountServiceAccountToken"], pod["securityContext"]["runAsNonRoot"]), (False, True))
    equal(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
    context = container["securityContext"]
    equal((context["allowPrivilegeEscalation"], context["capabilities"]), (False, {"drop": ["ALL"]}))
    own = yaml.safe_load(pathlib.Path(COMPONENT).read_text())["run"]
    equal(own["container"]["securityContext"], context)
    # The platform takes the fields of a container here, which have no group of volumes.
    equal({**own["environment"]["securityContext"], "fsGroup": 65532}, pod["securityContext"])
    equal(own["container"]["image"], container["image"])


component()
manifests()
if os.environ.get("SERVER") == "real":
    at_the_server()
print("the controller's component and manifests are valid")
