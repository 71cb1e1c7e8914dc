"""The official Python client, unmodified, drives the emulator of AWS Lambda MicroVMs.

With the variables that the emulator prints, and EMULATOR_URL: python check.py [MEMBERS]

MEMBERS is a file with the members that somebody uses, which the service model must have; see shapes.py.
"""

import io
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from emulator import admin, check, passed, requests, same, script
from shapes import Witness, check_list, check_table

REGION = os.environ["AWS_REGION"]
BASE = f"arn:aws:lambda:{REGION}:aws:microvm-image:al2023-1"
ROLE = "arn:aws:iam::123456789012:role/build"
BUCKET = "check-artifacts"
PROGRAM = Path(__file__).with_name("program.py").read_text()
DOCKERFILE = """FROM public.ecr.aws/lambda/microvms:al2023-minimal
WORKDIR /srv
COPY program.py /opt/program.py
RUN echo built > made
EXPOSE 8080 9000
CMD ["python3", "/opt/program.py"]
"""
HOOKS = {
    "port": 9000,
    "microvmImageHooks": {
        "ready": "ENABLED", "readyTimeoutInSeconds": 60, "validate": "ENABLED", "validateTimeoutInSeconds": 60,
    },
    "microvmHooks": {
        "run": "ENABLED", "runTimeoutInSeconds": 10, "suspend": "ENABLED", "suspendTimeoutInSeconds": 10,
        "resume": "ENABLED", "resumeTimeoutInSeconds": 10, "terminate": "ENABLED", "terminateTimeoutInSeconds": 10,
    },
}  # fmt: skip
LIMIT = 60


def fault(method, path, effect, times=1):
    return {"method": method, "path": path, "times": times, "effect": effect}


def violations():
    found = [violation["what"] for violation in admin("GET", "violations")]
    admin("DELETE", "violations")
    return found


@contextmanager
def refused(status, code, part=""):
    try:
        yield
    except ClientError as error:
        got = (error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"])
        assert got == (status, code), error
        assert part in error.response["Error"]["Message"], error
    else:
        raise AssertionError(f"succeeded, not refused with {status} {code}")


def until(what, ask):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what} within {LIMIT} s; {admin('GET', 'state')}")


def archive(dockerfile=DOCKERFILE):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("Dockerfile", dockerfile)
        files.writestr("program.py", PROGRAM)
    return data.getvalue()


s3 = boto3.client("s3")
# Some more attempts than its default: the account allows two suspensions in a second, and five runs.
service = boto3.client("lambda-microvms", config=Config(retries={"total_max_attempts": 6}))
witness = Witness(service)
model = service.meta.service_model


def settings(key="check.zip", **changes):
    artifact = {"uri": f"s3://{BUCKET}/{key}"}
    return {"baseImageArn": BASE, "buildRoleArn": ROLE, "codeArtifact": artifact, "hooks": HOOKS} | changes


def built(image):
    def ask():
        view = service.get_microvm_image(imageIdentifier=image)
        return None if view["state"].endswith("ING") else view

    return until("a build ends", ask)


def state(microvm, wanted):
    def ask():
        view = service.get_microvm(microvmIdentifier=microvm["microvmId"])
        return view if view["state"] == wanted else None

    return until(f"{wanted} comes", ask)


def endpoint(microvm, token, path="/", body=None, **headers):
    """Status and body of a request to a MicroVM's endpoint, as the proxy answers it."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()} | token | {"Host": microvm["endpoint"]}
    url = os.environ["AWS_MICROVM_DATA_PLANE_URL"] + path
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ready(microvm, token):
    def ask():
        status, body = endpoint(microvm, token)
        assert status in (200, 502), (status, body)
        return json.loads(body) if status == 200 else None

    return until("the endpoint answers", ask)


def token_for(microvm, *ports):
    ports = list(ports) or [{"port": 8080}]
    made = service.create_microvm_auth_token(
        microvmIdentifier=microvm["microvmId"], expirationInMinutes=30, allowedPorts=ports
    )
    return made["authToken"]


with check("the emulator's operations and members are the service model's"):
    check_table(model, admin("GET", "state")["operations"])
    if len(sys.argv) > 1:
        print(f"    {check_list(model, Path(sys.argv[1]).read_text())} members of {sys.argv[1]}")

with check("objects are put, looked at, read and deleted"):
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="check.zip", Body=archive(), Metadata={"content": "1"})
    head = s3.head_object(Bucket=BUCKET, Key="check.zip")
    same((head["ContentLength"], head["Metadata"]), (len(archive()), {"content": "1"}))
    same(s3.get_object(Bucket=BUCKET, Key="check.zip")["Body"].read(), archive())
    # A stream is sent in chunks.
    s3.put_object(Bucket=BUCKET, Key="a b/stream", Body=io.BytesIO(b"x" * 200_000))
    same(s3.get_object(Bucket=BUCKET, Key="a b/stream")["Body"].read(), b"x" * 200_000)
    s3.delete_object(Bucket=BUCKET, Key="a b/stream")
    with refused(404, "404"):
        s3.head_object(Bucket=BUCKET, Key="a b/stream")
    with refused(404, "NoSuchKey"):
        s3.get_object(Bucket=BUCKET, Key="a b/stream")
    with refused(404, "NoSuchBucket"):
        s3.put_object(Bucket="nobody", Key="x", Body=b"")

with check("requests must be signed, by the account, with its secret"):
    unsigned = boto3.client("lambda-microvms", config=Config(signature_version=UNSIGNED))
    with refused(403, "MissingAuthenticationTokenException"):
        unsigned.list_microvms()
    same(violations(), ["Missing Authentication Token"])
    stranger = boto3.client("lambda-microvms", aws_access_key_id="AKIAOTHER", aws_secret_access_key="x")
    with refused(403, "UnrecognizedClientException"):
        stranger.list_microvms()
    key = os.environ["AWS_ACCESS_KEY_ID"]
    forger = boto3.client("lambda-microvms", aws_access_key_id=key, aws_secret_access_key="x")
    with refused(403, "InvalidSignatureException", "signature"):
        forger.list_microvms(imageIdentifier=BASE, maxResults=3)
    elsewhere = boto3.client("lambda-microvms", region_name="eu-west-1")
    with refused(403, "InvalidSignatureException", "region"):
        elsewhere.list_microvms()
    forger = boto3.client("s3", aws_access_key_id=key, aws_secret_access_key="x")
    with refused(403, "SignatureDoesNotMatch"):
        forger.put_object(Bucket=BUCKET, Key="check.zip", Body=b"")
    same(len(violations()), 3)

with check("the managed image and its versions"):
    items = [item for page in service.get_paginator("list_managed_microvm_images").paginate() for item in page["items"]]
    same([item["imageArn"] for item in items], [BASE])
    pages = service.get_paginator("list_managed_microvm_image_versions").paginate(
        imageIdentifier=BASE, PaginationConfig={"PageSize": 1}
    )
    versions = [(item["imageVersion"], item["status"]) for page in pages for item in page["items"]]
    same(versions, [("1", "AVAILABLE"), ("0", "AVAILABLE")])

TOKEN = str(uuid.uuid4())
FULL = settings(
    name="sb-check",
    description="for the check",
    logging={"cloudWatch": {"logGroup": "/aws/lambda-microvms/sb-check", "logStream": "one"}},
    egressNetworkConnectors=[f"arn:aws:lambda:{REGION}:aws:network-connector:aws-network-connector:INTERNET_EGRESS"],
    cpuConfigurations=[{"architecture": "ARM_64"}],
    resources=[{"minimumMemoryInMiB": 512}],
    additionalOsCapabilities=["ALL"],
    environmentVariables={"BAKED": "1"},
    baseImageVersion="1",
    tags={"app": "sb", "run-id": "a b"},
)

# Long enough to be met in the middle.
SLOW = {"kind": "flag", "name": "slow-build", "value": 5000}

with check("an image is built, once for a client token"):
    script(fault("POST", "/2025-09-09/microvm-images", SLOW))
    made = service.create_microvm_image(**FULL, clientToken=TOKEN)
    IMAGE = made["imageArn"]
    same((made["name"], made["state"], made["imageVersion"]), ("sb-check", "CREATING", "1.0"))
    same({name: made[name] for name in FULL}, FULL)
    with refused(400, "ValidationException", "current state"):
        service.delete_microvm_image(imageIdentifier=IMAGE)
    same(service.create_microvm_image(**FULL, clientToken=TOKEN)["imageArn"], IMAGE)
    with refused(409, "ConflictException"):
        service.create_microvm_image(**FULL | {"description": "other"}, clientToken=TOKEN)
    with refused(400, "ValidationException", "already exists"):
        service.create_microvm_image(**FULL)
    view = built(IMAGE)
    same((view["state"], view["latestActiveImageVersion"], view["tags"]), ("CREATED", "1.0", FULL["tags"]))

with check("a version has a build for each generation of chips"):
    pages = service.get_paginator("list_microvm_image_builds").paginate(
        imageIdentifier=IMAGE, imageVersion="1.0", architecture="ARM_64", chipset="GRAVITON",
        PaginationConfig={"PageSize": 1},
    )  # fmt: skip
    builds = [item for page in pages for item in page["items"]]
    same([(build["buildState"], build["chipsetGeneration"]) for build in builds], [("SUCCESSFUL", "3"), ("SUCCESSFUL", "4")])
    build = service.get_microvm_image_build(imageIdentifier=IMAGE, imageVersion="1.0", buildId=builds[0]["buildId"])
    assert build["snapshotBuild"]["codeInstallSizeInBytes"] > 0, build
    one = service.list_microvm_image_builds(imageIdentifier=IMAGE, imageVersion="1.0", chipsetGeneration="4")
    same(len(one["items"]), 1)

with check("images are found by a part of their name"):
    found = service.list_microvm_images(nameFilter="-chec", maxResults=50)["items"]
    same([(item["imageArn"], item["state"]) for item in found], [(IMAGE, "CREATED")])
    same(service.list_microvm_images(nameFilter="other")["items"], [])

with check("what is invalid is refused in the words of the service"):
    with refused(400, "ValidationException", "Member must satisfy regular expression pattern: [a-zA-Z0-9-_]+"):
        service.create_microvm_image(**FULL | {"name": "a b"})
    with refused(400, "ValidationException", "Value '28801' at 'maximumDurationInSeconds'"):
        service.run_microvm(imageIdentifier=IMAGE, maximumDurationInSeconds=28_801)
    with refused(400, "ValidationException", "'runHookPayload'"):
        service.run_microvm(imageIdentifier=IMAGE, runHookPayload="x" * 4097)
    with refused(400, "ValidationException", "Malformed network connector ARN"):
        service.run_microvm(imageIdentifier=IMAGE, egressNetworkConnectors=["INTERNET_EGRESS"])
    with refused(404, "ResourceNotFoundException"):
        service.run_microvm(imageIdentifier=IMAGE, imageVersion="7.0")
    with refused(404, "ResourceNotFoundException", "MicroVM not found: microvm-none"):
        service.get_microvm(microvmIdentifier="microvm-none")
    same(violations(), [])
    with refused(400, "ValidationException", "Invalid ARN format"):
        service.get_microvm_image(imageIdentifier="sb-check")
    same(violations(), ["Invalid ARN format"])

with check("a MicroVM runs, and is run once for a client token"):
    asked = {
        "imageIdentifier": IMAGE,
        "imageVersion": "1.0",
        "executionRoleArn": "arn:aws:iam::123456789012:role/run",
        "idlePolicy": {"maxIdleDurationSeconds": 300, "suspendedDurationSeconds": 600, "autoResumeEnabled": False},
        "maximumDurationInSeconds": 3600,
        "ingressNetworkConnectors": [
            f"arn:aws:lambda:{REGION}:aws:network-connector:aws-network-connector:{name}_INGRESS"
            for name in ("HTTP", "SHELL")
        ],
    }
    token = str(uuid.uuid4())
    more = {"logging": {"disabled": {}}, "runHookPayload": '{"v":1}', "clientToken": token}
    main = service.run_microvm(**asked, **more)
    same(main["state"], "PENDING")
    same({name: main[name] for name in asked if name != "imageIdentifier"}, {n: v for n, v in asked.items() if n != "imageIdentifier"})
    same(service.run_microvm(**asked, **more)["microvmId"], main["microvmId"])
    with refused(409, "ConflictException"):
        service.run_microvm(**asked | {"maximumDurationInSeconds": 60}, **more)
    same(state(main, "RUNNING")["endpoint"], main["endpoint"])

with check("its endpoint takes tokens, and the program sees what was sent"):
    grant = token_for(main, {"port": 8080}, {"range": {"startPort": 9100, "endPort": 9101}})
    same(list(grant), ["X-aws-proxy-auth"])
    seen = ready(main, grant)
    run = [body for path, body in seen["hooks"] if path.endswith("/run")]
    same([json.loads(body) for body in run], [{"microvmId": main["microvmId"], "runHookPayload": '{"v":1}'}])
    status, body = endpoint(main, grant, "/a%20b?c", b"hello", X_aws_proxy_port="8080")
    seen = json.loads(body)
    same((status, seen["path"], seen["body"], seen["headers"]["host"]), (200, "/a%20b?c", "hello", main["endpoint"]))
    assert not [name for name in seen["headers"] if name.startswith("x-aws-proxy")], seen
    same(endpoint(main, grant, X_aws_proxy_port="9000"), (403, b"Access to port denied"))
    same(endpoint(main, grant, X_aws_proxy_port="9100"), (502, b""))
    same(endpoint(main, {"X-aws-proxy-auth": "x"}), (403, b"Request missing authentication"))
    same(endpoint({"endpoint": main["endpoint"].replace(REGION, "x")}, grant), (403, b"Token authentication failed"))
    every = token_for(main, {"allPorts": {}})
    same(endpoint(main, every, X_aws_proxy_port="8080")[0], 200)
    with refused(400, "ValidationException", "ExpirationMinutes 61 exceeded max allowed of 60."):
        service.create_microvm_auth_token(
            microvmIdentifier=main["microvmId"], expirationInMinutes=61, allowedPorts=[{"port": 1}]
        )

with check("shells need a connector"):
    same(list(service.create_microvm_shell_auth_token(microvmIdentifier=main["microvmId"], expirationInMinutes=1)["authToken"]), ["X-aws-proxy-auth"])
    plain = service.run_microvm(imageIdentifier=IMAGE)
    with refused(400, "ValidationException", "SHELL_INGRESS"):
        service.create_microvm_shell_auth_token(microvmIdentifier=plain["microvmId"], expirationInMinutes=1)

with check("MicroVMs are listed by pages and by image"):
    pages = service.get_paginator("list_microvms").paginate(imageIdentifier=IMAGE, PaginationConfig={"PageSize": 1})
    same({item["microvmId"] for page in pages for item in page["items"]}, {main["microvmId"], plain["microvmId"]})
    other = service.list_microvms(imageIdentifier=IMAGE, imageVersion="2.0", maxResults=1)
    assert other["items"] == [] and other["nextToken"], other

with check("a suspended MicroVM stands still, keeps its memory, and goes on"):
    service.suspend_microvm(microvmIdentifier=main["microvmId"])
    state(main, "SUSPENDED")
    same(endpoint(main, grant), (502, b""))
    service.suspend_microvm(microvmIdentifier=main["microvmId"])
    service.resume_microvm(microvmIdentifier=main["microvmId"])
    state(main, "RUNNING")
    service.resume_microvm(microvmIdentifier=main["microvmId"])
    hooks = [path.rsplit("/", 1)[1] for path, _ in ready(main, grant)["hooks"]]
    same([hook for hook in hooks if hook != "ready"], ["run", "suspend", "resume"])

with check("an image is updated to a second version, which can be switched off and deleted"):
    script(fault("PUT", "/2025-09-09/microvm-images/*", SLOW))
    updated = service.update_microvm_image(imageIdentifier=IMAGE, **settings(description="second"))
    same((updated["state"], updated["imageVersion"], updated["description"]), ("UPDATING", "2.0", "second"))
    with refused(409, "ConflictException", "already in state: UPDATING"):
        boto3.client("lambda-microvms", config=Config(retries={"total_max_attempts": 1})).update_microvm_image(
            imageIdentifier=IMAGE, **settings()
        )
    same(built(IMAGE)["latestActiveImageVersion"], "2.0")
    same(service.get_microvm_image_version(imageIdentifier=IMAGE, imageVersion="2.0")["status"], "ACTIVE")
    pages = service.get_paginator("list_microvm_image_versions").paginate(
        imageIdentifier=IMAGE, PaginationConfig={"PageSize": 1}
    )
    same([item["imageVersion"] for page in pages for item in page["items"]], ["1.0", "2.0"])
    off = service.update_microvm_image_version(imageIdentifier=IMAGE, imageVersion="2.0", status="INACTIVE")
    same(off["status"], "INACTIVE")
    with refused(404, "ResourceNotFoundException", "No active version"):
        service.run_microvm(imageIdentifier=IMAGE, imageVersion="2.0")
    gone = service.delete_microvm_image_version(imageIdentifier=IMAGE, imageVersion="2.0")
    same((gone["imageVersion"], gone["state"]), ("2.0", "DELETING"))
    built(IMAGE)
    with refused(400, "ValidationException", "last version"):
        service.delete_microvm_image_version(imageIdentifier=IMAGE, imageVersion="1.0")

with check("tags change"):
    service.tag_resource(Resource=IMAGE, Tags={"more": "c/d"})
    service.untag_resource(Resource=IMAGE, TagKeys=["run-id", "none"])
    same(service.list_tags(Resource=IMAGE)["Tags"], {"app": "sb", "more": "c/d"})
    with refused(404, "ResourceNotFoundException"):
        service.list_tags(Resource=IMAGE + "-none")

with check("throttling and failures of gateways are retried by the client"):
    slow = {"x-amzn-errortype": "ThrottlingException", "Retry-After": "1"}
    throttled = {"kind": "answer", "status": 429, "headers": slow, "body": '{"message":"Rate exceeded"}'}
    page = {"kind": "answer", "status": 502, "headers": {"content-type": "text/html"}, "body": "<html>Bad Gateway</html>"}
    script(fault("GET", "/2025-09-09/microvms/*", throttled), fault("GET", "/2025-09-09/microvms", page))
    service.get_microvm(microvmIdentifier=main["microvmId"])
    same([request["status"] for request in requests("GET", main["microvmId"])], [429, 200])
    service.list_microvms()
    same([request["status"] for request in requests("GET", "/microvms")], [502, 200])

with check("a run whose answer was lost is not run twice"):
    before = len(service.list_microvms()["items"])
    script(fault("POST", "/2025-09-09/microvms", {"kind": "lose-response"}))
    lost = service.run_microvm(imageIdentifier=IMAGE)
    same([request["status"] for request in requests("POST", "/microvms")], [None, 200])
    same(len(service.list_microvms()["items"]), before + 1)

with check("a terminated MicroVM stays to be read, and takes no orders"):
    for microvm in (main, plain, lost):
        service.terminate_microvm(microvmIdentifier=microvm["microvmId"])
        ended = state(microvm, "TERMINATED")
        assert ended["stateReason"] == "Success." and ended["terminatedAt"] >= ended["startedAt"], ended
    service.terminate_microvm(microvmIdentifier=main["microvmId"])
    for order in (service.suspend_microvm, service.resume_microvm):
        with refused(400, "ValidationException", "has been terminated and its state cannot be changed"):
            order(microvmIdentifier=main["microvmId"])
    same(endpoint(main, grant), (502, b""))

with check("a build that fails says why in its builds"):
    s3.put_object(Bucket=BUCKET, Key="fails.zip", Body=archive("FROM any\nRUN exit 3\n"))
    failed = service.create_microvm_image(name="sb-fails", **settings("fails.zip"))["imageArn"]
    view = built(failed)
    same((view["state"], view["latestFailedImageVersion"]), ("CREATE_FAILED", "1.0"))
    builds = service.list_microvm_image_builds(imageIdentifier=failed, imageVersion="1.0")["items"]
    same({build["stateReason"] for build in builds}, {"The container image build failed."})
    absent = service.create_microvm_image(name="sb-absent", **settings("absent.zip"))["imageArn"]
    same(built(absent)["state"], "CREATE_FAILED")
    builds = service.list_microvm_image_builds(imageIdentifier=absent, imageVersion="1.0")["items"]
    same({build["stateReason"] for build in builds}, {"S3_NO_SUCH_KEY"})

with check("images go"):
    for image in (IMAGE, failed, absent):
        same(service.delete_microvm_image(imageIdentifier=image)["state"], "DELETING")
        until("the image goes", lambda: image not in [item["imageArn"] for item in service.list_microvm_images()["items"]])
        with refused(404, "ResourceNotFoundException", "MicroVMImage not found"):
            service.get_microvm_image(imageIdentifier=image)

with check("every operation was answered, and every answer had the shape of the model"):
    missing = set(model.operation_names) - set(witness.seen)
    assert not missing, f"never seen: {missing}"
    errors = {"ValidationException", "ConflictException", "ResourceNotFoundException"}
    assert errors <= set(witness.seen), witness.seen

same(violations(), [])
same(admin("GET", "state")["machines"], [])
print(f"{len(passed)} checks passed, {sum(witness.seen.values())} answers held against the model")
