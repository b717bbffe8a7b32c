"""`ds-accum compare`: only the shell; what is run and measured is `ds_accum.compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ds_accum.cli.compare_options import compare_options
from ds_accum.cli.messages import print_error, terminal_for
from ds_accum.cli.sections import SectionedCommand
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.compare.gates import Gate
    from ds_accum.compare.launchers import Launcher
    from ds_accum.compare.linting import Linted
    from ds_accum.compare.projection import Projection
    from ds_accum.compare.result import Comparison
    from ds_accum.compare.spec import RunSpec

__all__ = ["compare"]

INTERRUPTED = 130


@click.command(cls=SectionedCommand, short_help="Train under each ZeRO stage, DDP and FSDP, and compare on one page.")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@compare_options
def compare(config: Path | None, source: Path | None, **options: Any) -> int:
    """Train under each ZeRO stage, DDP and FSDP, and compare on one page.

    Every variant really trains: the same model, samples and global batch, in processes of this machine. CONFIG is a
    DeepSpeed config; without one a small built-in one is used. Needs ds-accum[engine] and, for the page,
    ds-accum[report].

    \b
      ds-accum compare
      ds-accum compare ds_config.json --stages 1,2,3 --steps 20
      ds-accum compare --stages 3 --vary zero_optimization.overlap_comm=true,false
      ds-accum compare --splits 1x8,2x4,4x2 --baselines none
      ds-accum compare --fail-if "token:parity>1e-4"
      ds-accum compare --from comparison/report.json --format md
    """
    interrupted = False
    if source is not None:
        if config is not None:
            raise UsageError(f"--from {source} runs nothing, so {config} has no use", remedy="leave one of them out")
        comparison = _read_report(source)
    else:
        # Found out before the minutes that it takes, not after.
        _prepare_folder(options["output_dir"])
        comparison, interrupted = _run(config, options)
    if not options["quiet"]:
        click.echo(_rendered(comparison, options), color=True)
    if source is None or _is_given("output_dir"):
        _prepare_folder(options["output_dir"])
        _write(
            comparison,
            options["output_dir"],
            options["project"],
            told=not options["quiet"] and options["format_name"] == "text",
        )
    if interrupted:
        return INTERRUPTED
    return 1 if _objections(comparison, options["fail_if"], options["color"]) else 0


# -------------------------------------------------------------------------------------------------------------- running


def _run(config: Path | None, options: dict[str, Any]) -> tuple[Comparison, bool]:
    """The comparison, and whether it was interrupted."""
    from ds_accum.cli.installed_deepspeed import release_to_judge_for
    from ds_accum.compare.gates import require_variants
    from ds_accum.compare.linting import lint_variants
    from ds_accum.compare.progress import reporter_for
    from ds_accum.compare.running import Run
    from ds_accum.compare.variants import make_spec, read_config

    launcher = _launcher(options)
    request = _request(options, launcher)
    spec = make_spec(request, None if config is None else read_config(config))
    _check_windows(spec, options["misuse"])
    require_variants(options["fail_if"], [variant.name for variant in spec.variants])
    version, _ = release_to_judge_for(None)
    linted = lint_variants(spec, version)
    if options["show_configs"]:
        _show_configs(linted)
    refused = [refusal for item in linted if (refusal := item.refusal()) is not None]
    for result in refused:
        print_error(f"{result.name} is not run: {result.failure}", color=options["color"])
    _require_packages(spec)
    run = Run(spec, launcher, refused=refused, memory=options["memory"], misuse=options["misuse"])
    return run.run(reporter_for(sys.stderr, quiet=options["quiet"])), run.interrupted


def _request(options: dict[str, Any], launcher: Launcher) -> Any:
    from dataclasses import replace

    from ds_accum.compare.spec import Workload
    from ds_accum.compare.variants import Request

    sizes = ("layers", "width", "heads", "vocabulary", "sequence_length", "seed")
    workload = replace(options["workload"] or Workload(), **{name: options[name] for name in sizes})
    if workload.kind == "text" and workload.width % workload.heads:
        raise UsageError(
            f"width {workload.width} is no multiple of heads {workload.heads}", remedy="change --width or --heads"
        )
    world_size = (
        sum(launcher.hosts.values()) if launcher.hosts and not _is_given("world_size") else options["world_size"]
    )
    device: Literal["cpu", "cuda"] = options["device"]
    if options["device"] == "auto":
        device = _cuda_or_cpu(world_size)
    return Request(
        world_size=world_size,
        stages=options["stages"],
        engines=options["engines"],
        baselines=options["baselines"],
        variations=options["vary"],
        splits=options["splits"],
        coalesce=options["coalesce"],
        micro_batch_size=options["micro_batch"],
        gradient_accumulation_steps=options["accumulation"],
        steps=options["steps"],
        optimizer=options["optimizer"],
        learning_rate=options["learning_rate"],
        workload=workload,
        device=device,
        timeout_s=options["timeout"],
    )


def _launcher(options: dict[str, Any]) -> Launcher:
    from ds_accum.cli.hostfile import read_hostfile
    from ds_accum.compare.launchers import Launcher

    kind, hostfile, shared = options["launcher"], options["hostfile"], options["shared_dir"]
    for name, value in (("--hostfile", hostfile), ("--master-port", options["master_port"])):
        if kind == "local" and value is not None:
            raise UsageError(
                f"{name} says nothing without a launcher", remedy="add --launcher torchrun or --launcher deepspeed"
            )
    hosts = {} if hostfile is None else read_hostfile(hostfile)
    if len(hosts) > 1 and shared is None:
        raise UsageError(
            f"the {len(hosts)} hosts of {hostfile} need a folder that all of them see",
            remedy="name it with --shared-dir",
        )
    if shared is not None and not shared.is_dir():
        raise UsageError(f"there is no folder {shared}", remedy="--shared-dir names one that all hosts see")
    return Launcher(kind=kind, hostfile=hostfile, hosts=hosts, master_port=options["master_port"], folder=shared)


def _check_windows(spec: RunSpec, misuse: bool) -> None:
    """Raises UsageError where misuse in the middle of a window is asked for, and a window has no middle."""
    for variant in spec.variants:
        if misuse and variant.stage is not None and variant.gradient_accumulation_steps < 2:
            raise UsageError(
                f"--misuse needs the middle of a window, and {variant.name} accumulates 1 micro-batch",
                remedy="give --accumulation or --splits with two or more",
            )


def _cuda_or_cpu(world_size: int) -> Literal["cpu", "cuda"]:
    """Told from the devices' files, which is not what an import of torch costs."""
    return "cuda" if len(list(Path("/dev").glob("nvidia[0-9]*"))) >= world_size else "cpu"


def _require_packages(spec: RunSpec) -> None:
    """Raises UsageError where what the workers or the page import is not installed: now, not in three minutes."""
    from importlib.util import find_spec

    needed = ("torch", "deepspeed") if any(variant.stage is not None for variant in spec.variants) else ("torch",)
    missing = [name for name in (*needed, "matplotlib") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} can't be found", remedy="pip install 'ds-accum[engine,report]'")


def _show_configs(linted: list[Linted]) -> None:
    """To standard error: standard output is the report's."""
    from ds_accum.compare.linting import said

    for item in linted:
        if item.text:
            click.echo(f"{item.variant.name}:\n{item.text}", err=True)
            for finding in item.findings:
                click.echo(f"  {finding.severity.value}: {said(finding)}", err=True)


# -------------------------------------------------------------------------------------------------------------- reports


def _read_report(path: Path) -> Comparison:
    from ds_accum.compare.reports import read_json

    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError.because(f"can't read {path}", error) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", remedy="give a report.json of ds-accum compare") from error
    try:
        return read_json(text)
    except ValueError as error:
        raise UsageError(
            f"{path} can't be rendered: {error}",
            remedy=getattr(error, "remedy", None)
            or "give a report.json of ds-accum compare, whole and as it was written",
        ) from error


def _rendered(comparison: Comparison, options: dict[str, Any]) -> str:
    """The report for standard output, without its last line end."""
    from ds_accum.compare import reports

    projection = options["project"]
    if options["format_name"] == "json":
        text = reports.render_json(comparison)
    elif options["format_name"] == "md":
        text = reports.render_markdown(comparison, projection=projection)
    else:
        terminal = terminal_for(sys.stdout, options["color"])
        text = reports.render_terminal(comparison, width=terminal.width, color=terminal.color, projection=projection)
    return text.rstrip("\n")


def _prepare_folder(folder: Path) -> None:
    import os

    from ds_accum.cli.files import unwritable

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"can't write {folder}: permission denied", remedy="name another folder with --output-dir")


def _write(comparison: Comparison, folder: Path, projection: Projection | None, *, told: bool) -> None:
    """The numbers first: the page can be made from them again."""
    from ds_accum.cli.files import write_file
    from ds_accum.compare import reports

    write_file(folder / "report.json", reports.render_json(comparison))
    write_file(folder / "report.html", reports.render_html(comparison, projection=projection))
    if told:
        click.echo(f"\nreport: {folder / 'report.html'} (numbers: {folder / 'report.json'})")


def _objections(comparison: Comparison, gates: tuple[Gate, ...], color: str) -> bool:
    """Says which limits are not kept; whether any is not, or a variant did not come to its end."""
    from ds_accum.compare.gates import check_gates

    broken = list(check_gates(gates, comparison))
    for sentence in broken:
        print_error(sentence, color=color)
    return bool(broken) or any(result.status != "done" for result in comparison.results)


def _is_given(name: str) -> bool:
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT
