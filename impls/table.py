"""Every implementation by name: a new folder needs one line here. Classes are imported on use.

Those of other people are known by name, too: in a Python or CUDA file that a person names (``./mine.py:MyKernel``,
``./mine.cu``), or offered by an installed distribution (entry points of the group ``spmark.implementations``). Nothing
of theirs is imported before somebody names it.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from spmark.impls.core import enums
from spmark.impls.core.enums import DeviceKind, Op
from spmark.impls.core.errors import SweepError, UnsupportedError, check_type, none_of, not_installed
from spmark.impls.core.files import is_file
from spmark.impls.core.outside import (
    IMPLEMENTATION_GROUP,
    FileClass,
    Offer,
    find_offer,
    is_file_class,
    offers,
    parse_file_class,
)

if TYPE_CHECKING:
    from spmark.impls.core.devicespec import DeviceSpec
    from spmark.impls.core.digest import OutsideSources
    from spmark.impls.core.interfaces import CostModel, Implementation

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PRIVATE = "spmark_outside_"
IMPLEMENTATIONS: Mapping[str, str] = {
    "cusparse": "spmark.impls.cusparse.plan:CuSparse",
    "cusparse_best": "spmark.impls.cusparse.plan:CuSparseBest",
    "cublas": "spmark.impls.cublas.plan:CuBlas",
    "cublaslt_best": "spmark.impls.cublas.plan:CuBlasLtBest",
    "gespmm": "spmark.impls.gespmm.plan:GeSpmm",
    "rowsplit": "spmark.impls.rowsplit.plan:RowSplit",
    "nnzbalanced": "spmark.impls.nnzbalanced.plan:NnzBalanced",
    "rode": "spmark.impls.rode.plan:RoDe",
    "flashsparse": "spmark.impls.flashsparse.plan:FlashSparse",
    "dgsparse": "spmark.impls.dgsparse.plan:DgSparse",
    "featgraph": "spmark.impls.featgraph.plan:FeatGraph",
    "direct": "spmark.impls.direct.plan:Direct",
    "sparsetir": "spmark.impls.sparsetir.plan:SparseTir",
    "sparsetir_bsr": "spmark.impls.sparsetir.blocks:SparseTirBsr",
    "sparsetir_dbsr": "spmark.impls.sparsetir.blocks:SparseTirDbsr",
    "sparsetir_srbcrs": "spmark.impls.sparsetir.blocks:SparseTirSrBcrs",
    "sparsetir_nohyb": "spmark.impls.sparsetir.nohyb:SparseTirNoHyb",
    "liteform": "spmark.impls.liteform.plan:LiteForm",
    "stile": "spmark.impls.stile.plan:Stile",
    "lo_spmm": "spmark.impls.lo_spmm.plan:LoSpmm",
    "triton_blocksparse": "spmark.impls.triton_blocksparse.plan:TritonBlockSparse",
    "dgl": "spmark.impls.dgl.plan:Dgl",
    "torch_sparse": "spmark.impls.torch_sparse.plan:TorchSparse",
    "cupyx": "spmark.impls.cupyx.plan:Cupyx",
    "pyg": "spmark.impls.pyg.plan:Pyg",
    "nvmath": "spmark.impls.nvmath.plan:NvMath",
    "scipy_cpu": "spmark.impls.scipy_cpu.plan:ScipyCpu",
    "numba_cpu": "spmark.impls.numba_cpu.plan:NumbaCpu",
    "blas_cpu": "spmark.impls.blas_cpu.plan:BlasCpu",
    "taco_cpu": "spmark.impls.taco_cpu.plan:TacoCpu",
    "dash": "spmark.impls.dash.plan:Dash",
    "auto": "spmark.impls.auto.plan:Auto",
}
RELATIONAL: Mapping[str, str] = {
    "rgms_hyb": "spmark.impls.rgms_hyb.plan:RgmsHyb",
    "rgms_rows": "spmark.impls.rgms_rows.plan:RgmsRows",
    "rgms_naive": "spmark.impls.rgms_naive.plan:RgmsNaive",
    "gather_gemm_scatter": "spmark.impls.gather_gemm_scatter.plan:GatherGemmScatter",
    "pyg_rgcn": "spmark.impls.pyg.relational:PygRgcn",
    "dgl_rgcn": "spmark.impls.dgl.relational:DglRgcn",
    "spconv": "spmark.impls.spconv.plan:Spconv",
    "spconv_triton": "spmark.impls.spconv.plan:SpconvTriton",
}
"""Implementations of RGMS, which take a `spmark.impls.core.relational.RelationalProblem`: what searches among all
implementations of SpMM or SDDMM does not ask them."""

NETWORKS: Mapping[str, str] = {
    "spmark_network": "spmark.impls.networks.plan:SpmarkNetwork",
    "lo_spmm_network": "spmark.impls.networks.plan:LoSpmmNetwork",
    "torch_network": "spmark.impls.networks.plan:TorchNetwork",
    "pyg_network": "spmark.impls.networks.plan:PygNetwork",
    "dgl_network": "spmark.impls.networks.plan:DglNetwork",
    "dense_network": "spmark.impls.networks.plan:DenseNetwork",
    "flex_network": "spmark.impls.networks.plan:FlexNetwork",
}
"""Networks by the library of their sparse products, which take a `spmark.impls.core.network.NetworkProblem`."""
OTHERS: Mapping[str, str] = {**RELATIONAL, **NETWORKS}
"""Implementations of other operators than SpMM and SDDMM."""


class Reach(NamedTuple):
    """What the class of an implementation of spmark says about itself; known without an import of it (`reach_of`)."""

    ops: frozenset[Op]
    devices: frozenset[DeviceKind]
    about: str
    """The first line of its docstring."""
    needs: tuple[str, ...] = ()
    """Modules that it needs and that plain spmark does not bring."""
    extra: str = ""
    """The extra of spmark that brings them."""

    def unmet(self, kinds: Iterable[DeviceKind]) -> str:
        """Say why it runs on none of some kinds of devices here; empty where it runs."""
        if not self.devices & set(kinds):
            return f"runs on {' and '.join(sorted(self.devices))}"
        return not_installed(self.needs, self.extra) or ""


@dataclass(frozen=True)
class Outside:
    """An implementation whose code is not part of spmark."""

    kind: type[Any]
    entry: str
    """``/folder/mine.py:MyKernel``, ``/folder/mine.cu``, or ``module:class`` of a distribution."""
    owner: str
    """Whose name it is, for messages."""


LOADED: dict[str, Outside] = {}
"""What this process has loaded, by name. A class that is loaded once stays."""


SWITCHES = ("anew", "again")
"""Keys of a config that say how a build is measured, and nothing of its plan: ``anew`` builds, on a GPU, as if nothing
had been built before; ``again`` measures what loading a kept plan costs (``load`` of the class)."""
AUTO: Mapping[str, tuple[str, ...]] = {
    "cuda": ("direct", "rowsplit", "sparsetir", "cusparse_best"),
    "cpu": ("scipy_cpu", "numba_cpu"),
    "host-simt": ("direct", "rowsplit"),
}
"""What competes where a person runs one matrix and names no implementation, by the kind of device."""
PLATFORMS: Mapping[str, str] = {
    "cpu": "spmark.impls.taco_cpu.platform:CpuPlatform",
    "cuda": "spmark.impls.sparsetir.platform:CudaPlatform",
    "spade_sim": "spmark.impls.spade_sim.platform:SpadePlatform",
}
"""What configs are collected on (`spmark.impls.tuning.platform.Platform`); imported on use."""


def implementation_names() -> list[str]:
    """List the implementations of SpMM and SDDMM, those of installed distributions and of loaded files last."""
    return list(dict.fromkeys((*IMPLEMENTATIONS, *offers(IMPLEMENTATION_GROUP), *LOADED)))


def reach_of(name: str) -> Reach:
    """Read what the class of an implementation of SpMM or SDDMM declares; imports of all classes take a second."""
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    file = Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    line_of = [classes[label]]  # the class and those above it, in this file
    for kind in line_of:
        line_of += [classes[base.id] for base in kind.bases if isinstance(base, ast.Name) and base.id in classes]
    said = {
        line.target.id: eval(ast.unparse(line.value), {}, vars(enums))  # what the words name is of `enums` alone
        for kind in reversed(line_of)
        for line in kind.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id in Reach._fields
        if line.value is not None
    }
    return Reach(about=(ast.get_docstring(classes[label]) or "").partition("\n")[0], **said)


def name_of(written: str, folder: Path | None = None) -> str:
    """Give the name of the implementation that a person means; everything else here takes names alone.

    Names in records and messages never come here: a file is imported because a person has written its path.

    Parameters
    ----------
    written : str
        A name, which is given back as it is; or a class in a file, or a CUDA file, which is loaded and from then on has
        its name.
    folder : Path, optional
        Where the path of a file begins; by default the current folder.

    Raises
    ------
    SweepError
        The file cannot be used (`_load_file`).
    """
    try:
        named = parse_file_class(written, folder)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL byte
        raise SweepError(f"{written}: expected the path of a file, found {error}: mend the path") from error
    return str(_load_file(named).kind.name) if named else written


def file_of(name: str) -> str | None:
    """Give the file, ``/folder/mine.py:MyKernel``, from which ``name`` was loaded; None for all others."""
    entry = LOADED[name].entry if name in LOADED else ""
    return entry if is_file_class(entry) else None


def create(name: str, config: Mapping[str, Any] | None = None) -> Implementation:
    """Make the implementation ``name`` with its tunables pinned to ``config``, whose `SWITCHES` are left out.

    A class may name ``retired`` tunables of earlier versions, each with the value that means what is done today. That
    value is left out.

    Raises
    ------
    SweepError
        The name or a tunable is unknown, or a value is illegal or of another type than its field; lists the known
        names. Or a class from outside of spmark cannot be used.
    UnsupportedError
        A retired tunable has another value.
    """
    who = f"implementation {name}"
    if config is not None and not isinstance(config, Mapping):
        raise SweepError(f"{who}: expected tunables as a mapping, found {config!r}")
    kind = _class_of(name)
    known, retired = {field.name: field for field in fields(kind)}, getattr(kind, "retired", {})
    tunables: dict[str, Any] = {}
    for key, value in (config or {}).items():
        if key in SWITCHES:
            if not isinstance(value, bool):
                raise SweepError(f"{who}: expected {key} to be true or false, found {value!r}")
            if value and key == "again" and not hasattr(kind, "load"):
                raise SweepError(
                    f"{who}: expected kept plans, which the key again loads, found none: leave the key out"
                )
        elif key not in retired:
            tunables[key] = value
        elif value != retired[key]:
            raise UnsupportedError(
                f"{who}: expected no {key}, which earlier versions had, found {value!r}: leave it out, or say "
                f"{retired[key]!r}, which means the same"
            )
    if unknown := sorted(map(str, tunables.keys() - known)):
        raise SweepError(f"{who}: expected tunables out of {', '.join(known) or 'none'}, found {', '.join(unknown)}")
    try:
        for key, value in tunables.items():
            check_type(known[key], value)
        return cast("Implementation", kind(**tunables))
    except TypeError as error:
        defaults = {key: known[key].default for key in tunables if known[key].default is not MISSING}
        raise SweepError(f"{who}: expected values like {defaults}, found {tunables!r} ({error})") from error
    except ValueError as error:
        raise SweepError(f"{who}: {error}") from error


def _outside(name: str) -> Outside | None:
    """Give an implementation from outside of spmark; None for one of its own.

    Raises
    ------
    SweepError
        The name is unknown; lists the known names. Or a class from outside of spmark cannot be used.
    """
    if isinstance(name, str):
        if name in LOADED:
            return LOADED[name]
        if offer := find_offer(IMPLEMENTATION_GROUP, name, IMPLEMENTATIONS, SweepError):
            return _load_offer(offer)
        if name in IMPLEMENTATIONS or name in OTHERS:
            return None
    message = none_of("an implementation", name, (*implementation_names(), *OTHERS))
    raise SweepError(f"{message}; a file is named by its path, ./mine.cu or ./mine.py:MyKernel")


def _class_of(name: str) -> Any:
    """Import the class of the implementation ``name``."""
    outside = _outside(name)
    return outside.kind if outside else resolve_name(_entry(name))


def _entry(name: str) -> str:
    return IMPLEMENTATIONS[name] if name in IMPLEMENTATIONS else OTHERS[name]


def module_of(name: str) -> str:
    """Give the module of the class of the implementation ``name``, by which its version is known.

    Raises
    ------
    SweepError
        The name is unknown; lists the known names. Or a class from outside of spmark cannot be used.
    """
    outside = _outside(name)
    return outside.kind.__module__ if outside else _entry(name).partition(":")[0]


def cost_models(name: str) -> Mapping[str, str]:
    """Give the cost models of an implementation or a platform: the ``module:class`` of each by the model's name."""
    kind = resolve_name(PLATFORMS[name]) if name in PLATFORMS else _class_of(name)
    return cast("Mapping[str, str]", getattr(kind, "cost_models", {}))


def cost_model(how: Any, model: str, device: DeviceSpec | None) -> CostModel:
    """Make the cost model ``model`` of an implementation for a device, or of a platform for its own machine (None).

    Raises
    ------
    SweepError
        There is no such model; lists the models.
    """
    known = cost_models(how.name)
    if model not in known:
        raise SweepError(f"{how.name}: expected a cost model out of {', '.join(known) or 'none'}, found {model!r}")
    return cast("CostModel", resolve_name(known[model])(how, device))


def forecasters() -> list[str]:
    """List spmark's implementations that foresee their choice without measuring (``forecast`` of their class)."""
    return [name for name in IMPLEMENTATIONS if hasattr(_class_of(name), "forecast")]


def find_platform(name: str) -> Any:
    """Import and make the platform ``name`` of `PLATFORMS`.

    Raises
    ------
    SweepError
        There is no such platform; lists all platforms.
    """
    if name not in PLATFORMS:
        raise SweepError(none_of("a platform", name, PLATFORMS))
    return resolve_name(PLATFORMS[name])()


def platform_of(implementation: str) -> Any:
    """Give the platform whose configs an implementation builds.

    Raises
    ------
    SweepError
        No platform has its configs, or the name is unknown.
    """
    for name, entry in PLATFORMS.items():
        if entry.startswith(f"{module_of(implementation).rpartition('.')[0]}."):
            return find_platform(name)
    raise SweepError(f"implementation {implementation}: expected a platform that has its configs, found none")


def _load_file(named: FileClass) -> Outside:
    """Load what a person names by its file: a class, whose file is imported, or a kernel, whose file is read.

    This happens once for a process.

    Parameters
    ----------
    named : FileClass
        With an absolute path. A file in a folder with an ``__init__.py`` is imported as a part of that package.

    Raises
    ------
    SweepError
        The file is missing or cannot be imported, the class is missing or is not an implementation, or its name is
        taken; the message says where and what to do.
    """
    known = next((one for one in LOADED.values() if one.entry == str(named)), None)
    if known is not None:
        return known
    if not is_file(named.file):
        raise SweepError(f"{named}: expected a Python or CUDA file, found none: mend the path")
    # The files are stamped before they are read, so that a change in between shows in the version.
    if not named.label:
        from spmark.impls.runtime.kernelfile import kernel_class

        sources = _sources(named.file, kernel_class.__module__)
        kind = kernel_class(named.file, private_name(named.file))
        return _kept(Outside(kind, str(named), f"the file {named.file}"), sources)
    sources, module = _sources(named.file), _imported_file(named.file)
    defined = {name: one for name, one in vars(module).items() if isinstance(one, type)}
    classes = {name: one for name, one in defined.items() if one.__module__ == module.__name__}
    try:
        if not classes:
            raise SweepError(f"{named.file}: expected the class {named.label}, found a file without classes: write it")
        if named.label not in classes:
            raise SweepError(f"{named.file}: {none_of('a class', named.label, classes)}")
        return _kept(Outside(classes[named.label], str(named), f"the file {named.file}"), sources)
    except SweepError:
        if not any(one.kind.__module__ == module.__name__ for one in LOADED.values()):
            del sys.modules[module.__name__]  # a mended file is read again
        raise


def _load_offer(offer: Offer) -> Outside:
    """Import what a distribution offers, whose name is not in `LOADED` yet.

    Raises
    ------
    SweepError
        The import fails, or the class is not an implementation of the name that its distribution registers.
    """
    sources = None
    with suppress(Exception):  # which loading tells better
        spec = find_spec(offer.entry.partition(":")[0])
        sources = _sources(Path(spec.origin)) if spec is not None and spec.origin is not None else None
    found = Outside(offer.load(SweepError), offer.entry, offer.owner)
    name = getattr(found.kind, "name", None)
    if name != offer.name:
        raise SweepError(
            f"{offer.entry}: expected the name {offer.name!r}, as {offer.owner} registers it, found {name!r}; mend "
            "that distribution"
        )
    return _kept(found, sources)


def faults(kind: Any) -> list[str]:
    """Say what keeps an object from being an implementation (`spmark.impls.core.interfaces.Implementation`).

    Returns
    -------
    list of str
        Each says what was expected and found; empty for an implementation.
    """
    if not isinstance(kind, type):
        return [f"expected a class, found {kind!r}"]
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    told = {name: getattr(kind, name, None) for name in ("name", "ops", "devices", "unsupported", "build")}
    told["kernels"] = getattr(kind, "kernels", ())
    name = told["name"]
    rules = {
        "@dataclass(frozen=True), whose fields are the tunables": frozen,
        "name: a text of letters, digits, '_', '.' and '-'": isinstance(name, str) and _NAME.fullmatch(name),
        "ops: a frozenset of members of Op": _some_of(told["ops"], Op),
        "devices: a frozenset of members of DeviceKind": _some_of(told["devices"], DeviceKind),
        "kernels: a tuple of KernelTemplate": isinstance(told["kernels"], tuple),
        "unsupported(problem, device)": callable(told["unsupported"]),
        "build(problem, device)": callable(told["build"]),
    }
    found = {rule: told.get(rule.partition(":")[0].partition("(")[0], "a class without it") for rule in rules}
    return [f"expected {rule}, found {found[rule]!r}" for rule, holds in rules.items() if not holds]


def _some_of(found: Any, members: type[StrEnum]) -> bool:
    return isinstance(found, frozenset) and bool(found) and all(isinstance(one, members) for one in found)


def _sources(file: Path, maker: str = "") -> OutsideSources:
    from spmark.impls.core.digest import OutsideSources  # stamps all of spmark, for which `spmark --help` does not wait

    return OutsideSources(file, maker)


def _kept(found: Outside, sources: OutsideSources | None) -> Outside:
    """Keep a class under its name, unless it is no implementation or the name is taken."""
    if wrong := faults(found.kind):
        raise SweepError(f"{found.entry}: expected an implementation: {'; '.join(wrong)}")
    name = found.kind.name
    owners = [offer.owner for offer in offers(IMPLEMENTATION_GROUP).get(name, ()) if offer.entry != found.entry]
    if name in IMPLEMENTATIONS or name in OTHERS or (Path(__file__).parent / name).is_dir():
        owners.append("spmark")
    if name in LOADED:
        owners.append(LOADED[name].owner)
    if owners:
        raise SweepError(
            f"{found.entry}: expected a name that is free, found {name!r}, a name of {' and '.join(owners)}, too: give "
            f"the class of {found.owner} another name"
        )
    if sources is not None:
        from spmark.impls.core.digest import keep_sources

        keep_sources(found.kind.__module__, sources)
    LOADED[name] = found
    return found


def private_name(path: Path) -> str:
    """Give the name of the module of a file, or of the package of a folder."""
    return f"{_PRIVATE}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _imported_file(file: Path) -> ModuleType:
    """Import a file under a private name, so that it shadows no module and no module shadows it."""
    folder = file.parent
    try:
        if not is_file(folder / "__init__.py"):
            return _executed(private_name(file), file)
        package = private_name(folder)
        if package not in sys.modules:
            _executed(package, folder / "__init__.py", folder)
        return sys.modules[package] if file.name == "__init__.py" else import_module(f"{package}.{file.stem}")
    except (Exception, SystemExit) as fault:
        raise SweepError(_why_not_imported(file, fault)) from fault


def _executed(name: str, file: Path, folder: Path | None = None) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(folder)] if folder else None)
    if spec is None or spec.loader is None:
        raise ImportError(f"Python has no loader for {file}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _why_not_imported(file: Path, fault: BaseException) -> str:
    """Say where an import failed: the last line of the file's folder that was running."""
    frames = traceback.extract_tb(fault.__traceback__)
    places = [str(file), *(f"{at.filename}:{at.lineno}" for at in frames if Path(at.filename).parent == file.parent)]
    if isinstance(fault, SyntaxError) and fault.filename:
        places.append(f"{fault.filename}:{fault.lineno}")
    hint = "mend the file"
    if isinstance(fault, ModuleNotFoundError):
        hint = (
            f"install {fault.name}; or, where {fault.name} is a file beside this one, put an __init__.py into the "
            "folder and import by `from . import ...`"
        )
    text = fault.msg if isinstance(fault, SyntaxError) else fault
    return f"{places[-1]}: expected a file that Python imports, found {type(fault).__name__}: {text}; {hint}"
