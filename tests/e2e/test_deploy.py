"""The image, the compose file and the Kubernetes manifests: each is well-formed by the schema of whoever reads it, they
agree with each other, and every command line in them is one that `braid` takes.

Nothing is built, pulled or started here but one health check. Schemas and the linter come with packages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from click.testing import CliRunner

import braidlog
from braidlog import config, limits
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.cli.main import cli
from tests.e2e.conformance import writer_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
PAGES = sorted((ROOT / "docs" / "operate").glob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KUBERNETES = ("1.31", kubernetes_validate.latest_version())
HTTP_PORT = 7480  # of /health and /metrics, in every file
USER = 10001
SPARE_S = 5  # that a process has between the end of its grace period and being killed


def name(path: Path) -> str:
    return path.name


# --- what stands in the files ----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: each with its text, comments left out and lines that go on joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = [line.split(None, 1) for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(word, rest.strip()) for word, rest in lines]


def instruction(word: str) -> str:
    """The last one of a kind: the one that is in force."""
    return [text for found, text in instructions() if found == word][-1]


EXAMPLE = dict(
    line.split("=", 1) for line in (DEPLOY / "env.example").read_text().splitlines() if line and line[0] != "#"
)


def interpolated(text: str, environment: Mapping[str, str]) -> str:
    """As compose does it: `${NAME:-default}`, `${NAME:?message}`, and `$$` for a dollar."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        given = environment.get(found["name"], "")
        if not given and found["kind"] == ":?":
            raise KeyError(found["name"])
        return given or found["rest"] or ""

    return re.sub(r"\$\$|\$\{(?P<name>\w+)(?:(?P<kind>:[-?])(?P<rest>[^}]*))?\}", value, text)


def compose(environment: Mapping[str, str] = EXAMPLE) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(interpolated((DEPLOY / "compose.yaml").read_text(), environment))
    return found


SERVICES: dict[str, dict[str, Any]] = compose()["services"]
OWN_SERVICES = {one: service for one, service in SERVICES.items() if service["image"].startswith("braidlog:")}


@cache
def resources() -> list[dict[str, Any]]:
    """Nobody changes them."""
    return [found for path in MANIFESTS for found in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in resources() if found["kind"] == kind]


def pods() -> dict[str, dict[str, Any]]:
    """The specification of the pods of each StatefulSet."""
    return {found["metadata"]["name"]: found["spec"]["template"]["spec"] for found in of_kind("StatefulSet")}


SETTINGS: dict[str, str] = of_kind("ConfigMap")[0]["data"]


_SHOWN: dict[str, dict[str, Any]] = {}  # by where it is started


class Launch(NamedTuple):
    """A process as one of the files starts it."""

    where: str
    args: list[str]
    environment: dict[str, str]

    @property
    def role(self) -> str:
        return self.args[0]

    def settings(self) -> dict[str, Any]:
        """What `braid` makes of it, or the test fails with what it says."""
        if self.where not in _SHOWN:
            _SHOWN[self.where] = self._shown()
        return _SHOWN[self.where]

    def _shown(self) -> dict[str, Any]:
        cleared: dict[str, str | None] = dict.fromkeys(sorted(_variables_here()))
        result = CliRunner().invoke(cli, ["--json", *self.args, "--show-config"], env={**cleared, **self.environment})
        assert result.exit_code == 0, f"{self.where}: braid {shlex.join(self.args)}: {result.stderr}"
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def value(self, setting: str) -> Any:
        return self.settings()[setting]["value"]


def _variables_here() -> set[str]:
    return {key for key in os.environ if key.startswith(config.PREFIX)}


def launches() -> Iterator[Launch]:
    assert json.loads(instruction("ENTRYPOINT")) == ["braid"]
    yield Launch("Dockerfile", json.loads(instruction("CMD")), {})
    for one, service in OWN_SERVICES.items():
        yield Launch(f"compose {one}", service["command"], service["environment"])
    for stateful, pod in pods().items():
        container = pod["containers"][0]
        for number in range(3):
            known = {"POD_NAME": f"{stateful}-{number}"}
            args = [
                re.sub(r"\$\((\w+)\)", lambda found, known=known: known[found[1]], arg) for arg in container["args"]
            ]
            yield Launch(known["POD_NAME"], args, dict(SETTINGS))


LAUNCHES = list(launches())


def launched(role: str, where: str) -> list[Launch]:
    return [launch for launch in LAUNCHES if launch.role == role and launch.where.startswith(where)]


# --- each by the rules of whoever reads it ---------------------------------------------------------------------------


def test_the_linter_has_nothing_to_say_about_the_image() -> None:
    linter = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([linter, "--no-color", DOCKERFILE], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_follows_its_schema() -> None:
    schema = get_builtin_schema("vendor.compose-spec")
    jsonschema.validators.validator_for(schema)(schema).validate(compose())


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=name)
def test_a_manifest_follows_the_schemas_of_kubernetes(path: Path, version: str) -> None:
    for found in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(found, version, strict=True)


def test_all_manifests_are_applied_together() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS]
    for found in resources():
        where = found["metadata"]["name"] if found["kind"] == "Namespace" else found["metadata"]["namespace"]
        assert where == kustomization["namespace"]


# --- with braid ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.where)
def test_braid_takes_every_command_line(launch: Launch) -> None:
    assert launch.settings()["role"] == launch.role


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.where)
def test_every_option_and_variable_is_a_setting(launch: Launch) -> None:
    """Named one by one, so that all that is missing is told at once."""
    settings = config.ROLES[launch.role]
    options = {setting.option for setting in settings}
    assert [arg for arg in launch.args if arg.startswith("--") and arg not in options] == []
    assert config.unknown_variables(launch.environment) == []


def test_secrets_are_given_in_variables_that_braid_reads() -> None:
    given = {entry["name"] for pod in pods().values() for entry in pod["containers"][0]["env"]}
    assert config.unknown_variables(dict.fromkeys(given, "")) == []


COMMANDS = [
    line.strip().removeprefix("$ ")
    for page in PAGES
    for line in re.sub(r"\\\n\s*", " ", page.read_text()).splitlines()
    if line.strip().startswith("$ braid ")
]


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: " ".join(line.split()[:4]))
def test_braid_takes_what_the_pages_show(line: str) -> None:
    """It is parsed and not carried out."""
    words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
    context = cli.make_context("braid", words[1:])
    command: Any = cli
    rest = [*context._protected_args, *context.args]
    while hasattr(command, "commands"):
        verb, found, rest = command.resolve_command(context, rest)
        command, context = found, found.make_context(verb, rest, parent=context)
        rest = [*context._protected_args, *context.args]


def test_ports_are_those_that_clients_look_for() -> None:
    for launch in LAUNCHES:
        [listen] = launch.value("listen")
        assert config.Address.parse(listen).port == (
            config.METADATA_PORT if launch.role == "metadata" else config.PORT
        ), launch.where
        assert config.Address.parse(launch.value("http")).port == HTTP_PORT, launch.where
    assert instruction("EXPOSE").split() == [str(port) for port in (config.METADATA_PORT, config.PORT, HTTP_PORT)]


def test_only_the_compose_file_asks_nobody_who_they_are() -> None:
    insecure = {launch.where for launch in LAUNCHES if launch.value("insecure")}
    assert insecure == {launch.where for launch in LAUNCHES if launch.where.startswith("compose ")}
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_image_has_only_extras_that_there_are() -> None:
    texts = [DOCKERFILE.read_text(), *(page.read_text() for page in PAGES)]
    named = {
        extra.strip()
        for text in texts
        for found in re.findall(r"(?:\"\.|braidlog)\[([a-z0-9, ]+)\]", text)
        for extra in found.split(",")
    }
    assert named
    assert named <= set(PROJECT["optional-dependencies"])


def test_versions_are_the_project_s() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    [image] = kustomization["images"]
    assert image["newTag"] == PROJECT["version"]
    assert {service["image"] for service in OWN_SERVICES.values()} == {f"braidlog:{PROJECT['version']}"}
    assert {pod["containers"][0]["image"] for pod in pods().values()} == {image["name"]}
    bases = [text.split()[0] for word, text in instructions() if word == "FROM"]
    for base in {*bases, *(service["image"] for service in SERVICES.values())}:
        assert re.search(r":v?\d+\.\d+", base), f"{base} is not pinned"
    asked = PROJECT["requires-python"].removeprefix(">=").split(".")
    for base in bases:
        found = re.findall(r"\d+", base.partition(":")[2])[:2]
        assert [int(part) for part in found] >= [int(part) for part in asked]


# --- with each other -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["compose ", "braidlog-"])
def test_brokers_know_every_metadata_process(where: str) -> None:
    advertised = [launch.value("advertise") for launch in launched("metadata", where)]
    assert len(advertised) == 3
    for broker in launched("broker", where):
        assert broker.value("metadata") == advertised


def test_a_published_port_is_the_one_that_its_broker_names() -> None:
    for broker in launched("broker", "compose "):
        [port] = SERVICES[broker.where.removeprefix("compose ")]["ports"]
        host, outside, inside = port.rsplit(":", 2)
        assert broker.value("advertise") == f"{host}:{outside}"
        assert int(inside) == config.PORT


def test_compose_waits_for_what_each_process_needs() -> None:
    etcd = {one for one in SERVICES if one.startswith("etcd-")}
    metadata = {one for one in SERVICES if one.startswith("metadata-")}
    assert len(etcd) == len(metadata) == 3
    for one, service in OWN_SERVICES.items():
        needs = service["depends_on"]
        assert set(needs) == (etcd | {"bucket"} if one in metadata else metadata)
    for one, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            checked = other in OWN_SERVICES or "healthcheck" in SERVICES[other]
            assert checked or how["condition"] == "service_completed_successfully", (one, other)
    volumes = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])}
    assert volumes == set(compose()["volumes"])


def test_compose_does_not_start_without_credentials() -> None:
    for secret in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        with pytest.raises(KeyError, match=secret):
            compose({key: value for key, value in EXAMPLE.items() if key != secret})


def test_nothing_secret_stands_in_a_file() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert "secretGenerator" not in kustomization
    assert of_kind("Secret") == []
    secret = re.compile(r"SECRET|PASSWORD|TOKEN|ACCESS_KEY", re.IGNORECASE)
    assert [key for key in SETTINGS if secret.search(key) and not key.endswith("_FILE")] == []
    for pod in pods().values():
        for entry in pod["containers"][0]["env"]:
            assert "value" not in entry, entry["name"]
    for line in (DEPLOY / "compose.yaml").read_text().splitlines():
        key, _, value = line.strip().partition(": ")
        if re.fullmatch(r"[A-Z_]+", key) and secret.search(key) and not key.startswith("ETCD_INITIAL_"):
            assert value.startswith("${"), line
            assert ":-" not in value, line


def test_every_secret_is_explained() -> None:
    text = json.dumps(list(pods().values()))
    named = set(re.findall(r"\"secretName\": \"([\w-]+)\"", text))
    named |= {
        reference["name"]
        for pod in pods().values()
        for container in pod["containers"]
        for reference in (
            *(entry["secretRef"] for entry in container["envFrom"] if "secretRef" in entry),
            *(entry["valueFrom"]["secretKeyRef"] for entry in container["env"] if "secretKeyRef" in entry["valueFrom"]),
        )
    }
    assert named
    for explained in (DEPLOY / "kubernetes" / "kustomization.yaml", ROOT / "docs" / "operate" / "deploy.md"):
        assert [one for one in sorted(named) if one not in explained.read_text()] == [], explained.name


def test_files_that_settings_name_are_mounted() -> None:
    needed = {
        "braidlog-metadata": [value for value in SETTINGS.values() if value.startswith("/etc/")],
        "braidlog-broker": [value for key, value in SETTINGS.items() if "_TLS_" in key],
    }
    for stateful, pod in pods().items():
        mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert set(mounted.values()) == {volume["name"] for volume in pod["volumes"]}
        assert needed[stateful]
        for path in needed[stateful]:
            assert str(Path(path).parent) in mounted, f"{stateful}: {path}"


def test_everything_in_kubernetes_finds_its_pods() -> None:
    labels = {
        found["metadata"]["name"]: found["spec"]["template"]["metadata"]["labels"] for found in of_kind("StatefulSet")
    }
    for stateful in of_kind("StatefulSet"):
        assert stateful["spec"]["selector"]["matchLabels"] == labels[stateful["metadata"]["name"]]
        assert stateful["spec"]["serviceName"] in {found["metadata"]["name"] for found in of_kind("Service")}
    selectors = [found["spec"]["selector"] for found in of_kind("Service")]
    selectors += [found["spec"]["selector"]["matchLabels"] for found in of_kind("PodDisruptionBudget")]
    selectors += [
        found["spec"]["podSelector"]["matchLabels"]
        for found in of_kind("NetworkPolicy")
        if found["spec"]["podSelector"]
    ]
    for selector in selectors:
        assert selector in labels.values()
    [scaler] = of_kind("HorizontalPodAutoscaler")
    [scaled] = [f for f in of_kind("StatefulSet") if f["metadata"]["name"] == scaler["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in scaled["spec"], "applying it again would undo what the autoscaler did"
    assert "cpu" in scaled["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]


def test_ports_in_kubernetes_are_those_that_are_listened_on() -> None:
    for stateful, pod in pods().items():
        container = pod["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        own = config.METADATA_PORT if stateful == "braidlog-metadata" else config.PORT
        assert set(ports.values()) == {own, HTTP_PORT}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert ports[container[probe]["httpGet"]["port"]] == HTTP_PORT
        for service in of_kind("Service"):
            if service["spec"]["selector"]["app.kubernetes.io/component"] == container["name"]:
                assert all(ports[port["targetPort"]] == port["port"] for port in service["spec"]["ports"])
        allowed = {
            port["port"]
            for policy in of_kind("NetworkPolicy")
            if policy["spec"]["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component")
            == container["name"]
            for rule in policy["spec"]["ingress"]
            for port in rule["ports"]
        }
        assert allowed == set(ports.values())


# --- safely ----------------------------------------------------------------------------------------------------------


def test_nothing_runs_as_root() -> None:
    assert instruction("USER") == f"{USER}:{USER}"
    order = [word for word, _ in instructions()]
    assert order.index("USER") > max(at for at, word in enumerate(order) if word == "RUN")
    for service in OWN_SERVICES.values():
        assert "user" not in service
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == USER
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "their variables begin with BRAIDLOG_"
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert "memory" in container["resources"]["limits"]


def test_no_tool_that_installs_things_is_in_the_image() -> None:
    stages = DOCKERFILE.read_text().split("\nFROM ")
    assert len(stages) == 3, "one to build in, and one to run"
    assert "--without-pip" in stages[1]
    assert "pip uninstall" in stages[2]
    assert not re.search(r"apt-get|apk |pip3? install", stages[2])


def test_there_is_time_to_end() -> None:
    grace = float(SETTINGS["BRAIDLOG_SHUTDOWN_GRACE_S"])
    for pod in pods().values():
        before = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert pod["terminationGracePeriodSeconds"] >= before + grace + SPARE_S
    for service in OWN_SERVICES.values():
        assert float(service["stop_grace_period"].removesuffix("s")) >= limits.SHUTDOWN_GRACE_S + SPARE_S


def test_one_at_a_time_may_be_away() -> None:
    budgets = {found["metadata"]["name"]: found["spec"]["maxUnavailable"] for found in of_kind("PodDisruptionBudget")}
    assert budgets == dict.fromkeys(pods(), 1)
    rules = pods()["braidlog-metadata"]["affinity"]["podAntiAffinity"]
    assert rules["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] == "kubernetes.io/hostname"


def test_the_health_check_of_the_image_tells_a_server_that_works_from_one_that_does_not() -> None:
    text = instruction("HEALTHCHECK")
    words = json.loads(text[text.index("CMD") + len("CMD") :])
    assert words[0] == "python"
    with braidlog.open("memory://") as braid:
        server = ServerThread(lambda: LocalService(writer_of(braid)), "service")
        try:
            server.listen_tcp("127.0.0.1", 0)
            _, port = server.listen_http("127.0.0.1", 0)
            command = [sys.executable, *(word.replace(f":{HTTP_PORT}/", f":{port}/") for word in words[1:])]
            well = subprocess.run(command, capture_output=True, timeout=30)
        finally:
            server.close()
    ill = subprocess.run(command, capture_output=True, timeout=30)
    assert (well.returncode, ill.returncode) == (0, 1), well.stderr
