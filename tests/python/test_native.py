"""The Python declarations of the C interfaces are those of their headers."""

from __future__ import annotations

import ctypes
import pathlib
import re
from types import ModuleType

import pytest
from skrull._native import client, executor, structs

from conftest import SOURCE

_CLIENT = SOURCE / "client/c_api/skrull_client.h"
_EXECUTOR = SOURCE / "cuda/c_api/skrull_exec.h"
_TABLE = SOURCE / "cuda/attention_table.h"


def header(path: pathlib.Path) -> str:
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)


def fields(text: str, struct: str) -> list[tuple[str, str]]:
    """(type, name) of a struct's fields, in order."""
    body = re.search(rf"struct {struct} \{{(.*?)\n\}}", text, re.S)
    assert body, f"no struct {struct}"
    found: list[tuple[str, str]] = []
    for declaration in body.group(1).split(";"):
        words = declaration.split()
        if not words:
            continue
        names = [part.strip() for part in " ".join(words).split(",")]
        kind, first = names[0].rsplit(" ", 1)
        found += [(kind, name) for name in [first, *names[1:]]]
    return found


SIZES = {"int64_t": 8, "int32_t": 4, "double": 8}
STRUCTS = [
    (_CLIENT, "skrull_client_error", client.Error),
    (_CLIENT, "skrull_client_job_spec", client.JobSpec),
    (_CLIENT, "skrull_client_batch", client.Batch),
    (_CLIENT, "skrull_client_plan_info", client.PlanInfo),
    (_CLIENT, "skrull_client_rank_plan_info", client.RankPlanInfo),
    (_CLIENT, "skrull_client_planner_options", client.PlannerOptions),
    (_CLIENT, "skrull_client_daemon_options", client.DaemonOptions),
    (_CLIENT, "skrull_client_job_info", client.JobInfo),
    (_CLIENT, "skrull_client_step_report", client.StepReport),
    (_CLIENT, "skrull_client_report_answer", client.ReportAnswer),
    (_CLIENT, "skrull_client_meeting", client.Meeting),
    (_CLIENT, "skrull_client_stream_options", client.StreamOptions),
    (_CLIENT, "skrull_client_answer", client.Answer),
    (_EXECUTOR, "skrull_segment", structs.Segment),
    (_EXECUTOR, "skrull_rank_plan", structs.RankPlanView),
    (_EXECUTOR, "skrull_device_options", executor.DeviceOptions),
    (_EXECUTOR, "skrull_backend_options", executor.BackendOptions),
    (_EXECUTOR, "skrull_backend_info", executor.BackendInfo),
    (_EXECUTOR, "skrull_comm_options", executor.CommOptions),
    (_EXECUTOR, "skrull_micro_batch_info", executor.MicroBatchInfo),
    (_EXECUTOR, "skrull_executor_options", executor.ExecutorOptions),
    (_EXECUTOR, "skrull_forward_tensors", executor.ForwardTensors),
    (_EXECUTOR, "skrull_backward_tensors", executor.BackwardTensors),
    (_TABLE, "skrull_attention_tensor", executor.Tensor),
]


@pytest.mark.parametrize(("path", "struct", "declared"), STRUCTS)
def test_structs_are_those_of_the_header(
    path: pathlib.Path, struct: str, declared: type[ctypes.Structure]
) -> None:
    wanted = fields(header(path), struct)
    got = [(field[0], ctypes.sizeof(field[1])) for field in declared._fields_]
    assert [name for name, _ in got] == [name for _, name in wanted]
    for (kind, name), (_, size) in zip(wanted, got, strict=True):
        whole = ctypes.sizeof(executor.Tensor) if "tensor" in kind else 8
        assert size == SIZES.get(kind, whole), name


@pytest.mark.parametrize(
    ("path", "module", "left_out"),
    [
        (_CLIENT, client, set()),
        # A table of functions in Python would take the GIL in every kernel.
        (_EXECUTOR, executor, {"skrull_backend_create_user"}),
    ],
)
def test_functions_are_those_of_the_header(
    path: pathlib.Path, module: ModuleType, left_out: set[str]
) -> None:
    declared = {
        name: arguments.count(",") + 1 if arguments.strip() != "void" else 0
        for name, arguments in re.findall(
            r"^[\w ]+\*? ?\*?(skrull_\w+)\(([^)]*)\);", header(path), re.M
        )
    }
    bound = {name: len(arguments) for name, _, arguments in module._PROTOTYPES}
    assert set(declared) - set(bound) == left_out
    for name, count in bound.items():
        assert declared[name] == count, name


def test_versions_are_those_of_the_headers() -> None:
    for path, module in ((_CLIENT, client), (_EXECUTOR, executor)):
        version = re.search(r"#define SKRULL_\w+_VERSION (\d+)", header(path))
        assert version
        assert module.VERSION == int(version.group(1))


def test_libraries_export_their_c_interface_alone() -> None:
    for module, prefix in ((client, "skrull_client_"), (executor, "skrull_")):
        path = pathlib.Path(module.library()._name)
        names = dynamic_symbols(path)
        assert names
        assert all(name.startswith(prefix) for name in names), names


def dynamic_symbols(path: pathlib.Path) -> set[str]:
    """What a shared library defines for others, by its dynamic symbol table."""
    import subprocess

    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}
