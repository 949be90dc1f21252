"""Carry out a Dockerfile as an engine does, each instruction on the layers before it; what did not change is kept."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.binaries import cache, progress
from lab.errors import LabError
from lab.image import base, context, network
from lab.image.dockerfile import Instruction, filled, parse
from lab.image.process import Mount, Process, run
from lab.image.stage import Stage

SECONDS = 900
INTO = "/.into"
COPY_WITHIN = """\
if [ -d "$1" ]; then mkdir -p "$2" && exec cp -a "$1/." "$2/"; fi
case "$2" in */) mkdir -p "$2" ;; *) mkdir -p "${2%/*}" ;; esac
exec cp -a "$1" "$2"
"""
"""What COPY --from does, in the stage that is copied from: a directory's content, or one file."""


@dataclass
class Build:
    """*root* is the directory that is copied from; *given* are the values of each ARG before the first FROM."""

    root: Path
    given: dict[str, str] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)


def build(root: Path) -> Stage:
    """The last stage of the Dockerfile in *root*; raises LabError with the line that cannot be carried out."""
    work = Build(root)
    name, stage = "", Stage("")
    for each in parse((root / "Dockerfile").read_text()):
        if each.verb == "FROM":
            name, stage = _from(work, each)
        elif not name:
            work.given |= each.pairs(work.given)
        else:
            stage = _step(work, stage, each)
        work.stages[name] = stage
    return stage


def _from(work: Build, instruction: Instruction) -> tuple[str, Stage]:
    image, *named = instruction.words(work.given)
    name = named[1] if named else f"line {instruction.line}"
    if image == "scratch":
        return name, Stage("scratch")
    return name, work.stages.get(image) or Stage(image, (base.layer(image),))


def _step(work: Build, stage: Stage, instruction: Instruction) -> Stage:
    if instruction.verb not in STEPS:
        known = ", ".join(STEPS)
        raise LabError(
            f"line {instruction.line}: {instruction.verb} cannot be carried out here, only {known}"
        )
    return STEPS[instruction.verb](work, stage, instruction)


def _run(_work: Build, stage: Stage, instruction: Instruction) -> Stage:
    command = instruction.words({}) if instruction.is_exec_form else ["/bin/sh", "-c", instruction.text]

    def fill(over: Path) -> None:
        _do(stage, instruction, command, over, {})

    return _layered(stage, stage.key_after("RUN", command, sorted(stage.variables.items())), fill)


def _copy(work: Build, stage: Stage, instruction: Instruction) -> Stage:
    *sources, target = instruction.words(stage.variables)
    # A slash at its end says that it is a directory, and what is copied keeps its name there.
    target = stage.path(target) + ("/" if target.endswith("/") else "")
    if origin := instruction.flags.get("from"):
        return _copy_from(work.stages[origin], stage, instruction, sources, target)
    return _copy_context(work, stage, instruction, sources, target)


def _copy_from(
    origin: Stage, stage: Stage, instruction: Instruction, sources: list[str], target: str
) -> Stage:
    def fill(over: Path) -> None:
        (over / "diff").mkdir()
        for source in sources:
            command = ["/bin/sh", "-c", COPY_WITHIN, "copy", source, f"{INTO}{target}"]
            _do(origin, instruction, command, None, {INTO: Mount(over / "diff", read_only=False)})

    return _layered(stage, stage.key_after("COPY", origin.key, sources, target), fill)


def _copy_context(
    work: Build, stage: Stage, instruction: Instruction, sources: list[str], target: str
) -> Stage:
    everything = context.files(work.root)
    found = {source: context.within(everything, source) for source in sources}
    for source, paths in found.items():
        if not paths:
            raise LabError(
                f"line {instruction.line}: COPY {source}: there is no such file in the build context"
            )

    def fill(over: Path) -> None:
        for source, paths in found.items():
            for path in paths:
                _place(work.root / path, over / "diff" / destination(source, path, target)[1:])

    digests = [context.digest(work.root, paths) for paths in found.values()]
    return _layered(stage, stage.key_after("COPY", sources, target, digests), fill)


def destination(source: str, path: Path, target: str) -> str:
    """Where `COPY source target` puts *path*, which is the source or lies in it."""
    if path == Path(source):
        return f"{target}{path.name}" if target.endswith("/") else target
    return f"{target.rstrip('/')}/{path.relative_to(source)}"


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _do(
    stage: Stage, instruction: Instruction, command: list[str], over: Path | None, mounts: Mapping[str, Mount]
) -> None:
    env = {**network.environment(), **stage.variables}
    process = Process(
        command,
        stage.layers,
        env,
        directory=stage.directory,
        user=stage.ids,
        mounts={**network.mounts(), **mounts},
        over=over,
    )
    with progress.step(f"line {instruction.line}: {instruction.verb} {instruction.text[:60]}"):
        code, printed = run(process, SECONDS)
    if code != 0:
        raise LabError(f"line {instruction.line}: {instruction.verb} ended with {code}: {printed[-2000:]}")


def _layered(stage: Stage, key: str, fill: Callable[[Path], None]) -> Stage:
    """*stage* with one layer more, which *fill* makes in a directory unless it was made before."""

    def make(making: Path) -> None:
        fill(making)
        shutil.rmtree(making / "work", ignore_errors=True)
        (making / base.DONE).touch()

    layer = cache.ensure(base.home() / key, base.DONE, make).parent / "diff"
    return replace(stage, key=key, layers=(*stage.layers, layer))


def _workdir(_work: Build, stage: Stage, instruction: Instruction) -> Stage:
    directory = stage.path(filled(instruction.text, stage.variables))

    def fill(over: Path) -> None:
        (over / "diff" / directory[1:]).mkdir(parents=True)

    return replace(_layered(stage, stage.key_after("WORKDIR", directory), fill), directory=directory)


def _arg(work: Build, stage: Stage, instruction: Instruction) -> Stage:
    named = {
        name: value or work.given.get(name, "") for name, value in instruction.pairs(stage.variables).items()
    }
    return replace(stage, arguments={**stage.arguments, **named})


def _env(_work: Build, stage: Stage, instruction: Instruction) -> Stage:
    return replace(stage, env={**stage.env, **instruction.pairs(stage.variables)})


def _label(_work: Build, stage: Stage, instruction: Instruction) -> Stage:
    return replace(stage, labels={**stage.labels, **instruction.pairs(stage.variables)})


def _user(_work: Build, stage: Stage, instruction: Instruction) -> Stage:
    return replace(stage, user=instruction.text)


def _command(_work: Build, stage: Stage, instruction: Instruction) -> Stage:
    return replace(stage, command=tuple(instruction.words({})))


def _nothing(_work: Build, stage: Stage, _instruction: Instruction) -> Stage:
    return stage


STEPS: Mapping[str, Callable[[Build, Stage, Instruction], Stage]] = {
    "ARG": _arg,
    "CMD": _command,
    "COPY": _copy,
    "ENV": _env,
    "EXPOSE": _nothing,
    "LABEL": _label,
    "RUN": _run,
    "USER": _user,
    "WORKDIR": _workdir,
}
