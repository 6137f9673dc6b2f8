#!/usr/bin/env python3
"""Keep deploy/kubernetes what the chart renders.

  manifests.py ROOT            # 0 when it is; else prints the differences, 1
  manifests.py ROOT --write    # renders it anew

Each NAME.values.yaml there makes NAME.yaml, of a release called skrull.
"""
import difflib
import pathlib
import sys

import chart
import yaml

HEADER = """\
# {title}
#
#   kubectl apply -f deploy/kubernetes/{name}.yaml
#
# Rendered from deploy/helm/skrull with {name}.values.yaml; do not edit:
# tests/deploy/manifests.py ROOT --write makes it anew.
"""


def manifest(root, values_path):
    """The text of the manifest of a file of values."""
    text = values_path.read_text(encoding="utf-8")
    files = chart.render(root / "deploy/helm/skrull", "skrull", yaml.safe_load(text))
    name = values_path.name.removesuffix(".values.yaml")
    title = text.splitlines()[0].removeprefix("# ")
    return HEADER.format(name=name, title=title) + "".join(
        f"---\n{body}" for body in files.values())


def main(root, write):
    folder = root / "deploy/kubernetes"
    differences = []
    for values_path in sorted(folder.glob("*.values.yaml")):
        path = folder / values_path.name.replace(".values.yaml", ".yaml")
        wanted = manifest(root, values_path)
        if write:
            path.write_text(wanted, encoding="utf-8")
            continue
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        differences += difflib.unified_diff(found.splitlines(), wanted.splitlines(),
                                            str(path), "the chart", lineterm="")
    print("\n".join(differences) or f"{folder}: what the chart renders")
    return 1 if differences else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), len(sys.argv) == 3))
