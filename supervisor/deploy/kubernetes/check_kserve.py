#!/usr/bin/env python3
"""Checks kserve.yaml: its fields against the models that KServe generates from its CRDs (the package `kserve`, unpacked
in the folder that is named), and its containers as those of a Pod, by kubernetes-validate."""

import ast
import re
import sys
from pathlib import Path

import kubernetes_validate
import yaml

SPEC = "V1alpha1ServingRuntimeSpec"
PLAIN = {"str": str, "int": int, "bool": bool, "float": float}


def fields(models: Path, name: str) -> dict[str, str]:
    """The type of each field of a model, by its name in YAML. Read and not imported: the package needs much else."""
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() + ".py"
    tree = ast.parse((models / file).read_text())
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name).body
    assigned = {node.targets[0].id: node.value for node in body if isinstance(node, ast.Assign)}
    types, names = (ast.literal_eval(assigned[of]) for of in ("openapi_types", "attribute_map"))
    return {names[field]: of for field, of in types.items()}


def check(models: Path, value: object, of: str, where: str) -> None:
    """Fails if a value is not of a type."""
    if many := re.fullmatch(r"list\[(.+)\]", of):
        assert isinstance(value, list), f"{where} is no list"
        for at, one in enumerate(value):
            check(models, one, many[1], f"{where}[{at}]")
    elif of in PLAIN:
        assert type(value) is PLAIN[of], f"{where} is not of type {of}"
    elif of.startswith("V1alpha1"):
        known = fields(models, of)
        for name, one in value.items():
            assert name in known, f"{where}.{name} is unknown: there is {', '.join(sorted(known))}"
            check(models, one, known[name], f"{where}.{name}")
    else:
        # Kubernetes' own: the Pod below has it.
        assert of == "V1Container", f"{where}: this check does not know {of}"


def main() -> None:
    models = Path(sys.argv[1]) / "kserve" / "models"
    runtime = yaml.safe_load(Path(__file__).with_name("kserve.yaml").read_text())
    assert (runtime["apiVersion"], runtime["kind"]) == ("serving.kserve.io/v1alpha1", "ServingRuntime")
    check(models, runtime["spec"], SPEC, "spec")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runtime"}}
    pod["spec"] = {"containers": runtime["spec"]["containers"]}
    kubernetes_validate.validate(pod, "1.31", strict=True)


if __name__ == "__main__":
    main()
