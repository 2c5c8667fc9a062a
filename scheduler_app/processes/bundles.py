"""The source of a flow version: pack it, and load flows from it or from a flow folder.

A bundle holds the flow file and the modules that it imports from its flow folder. Its digest is
over paths and bytes, not over the archive, whose compression may differ between hosts. Catalog and
worker load code in the same way, so what the catalog accepted is what the worker finds.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import io
import json
import keyword
import os
import shutil
import sys
import tempfile
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from scheduler_app.authoring.faults import fault
from scheduler_app.authoring.registry import Registration, collecting
from scheduler_app.processes import bundle_cache
from scheduler_app.rules.errors import DefinitionError, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scheduler_app.authoring.faults import Fault
    from scheduler_app.authoring.flow import Flow

MANIFEST: Final = ".daylight.json"  # in the archive: which file is the flow file
FILE_COUNT_MAX: Final = 2_000
BYTES_MAX: Final = 32 * 1024 * 1024  # of all sources of a bundle
LOADED_MAX: Final = 16  # bundles whose modules one process keeps
_MARK: Final = (
    "daylight: a folder begins"  # among the modules: what comes after it may be the folder's
)
_FIXED_TIME: Final = (1980, 1, 1, 0, 0, 0)


# --- pack -----------------------------------------------------------------------------------------


def pack(folder: Path, main_path: str, paths: Iterable[str]) -> tuple[str, bytes]:
    """Digest and archive of these files of the folder; the same content gives the same digest."""
    return pack_sources(main_path, {path: (folder / path).read_bytes() for path in paths})


def pack_sources(main_path: str, sources: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Digest and archive of these sources by their path in the flow folder."""
    if main_path not in sources:
        raise InvalidInput(f"The flow file {main_path!r} is not among the files of its bundle.")
    _check_size(len(sources), sum(map(len, sources.values())))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(_entry(MANIFEST), json.dumps({"main": main_path}))
        for path in sorted(sources):
            _check_path(path)
            out.writestr(_entry(path), sources[path])
    return digest_of(main_path, sources), archive.getvalue()


def digest_of(main_path: str, sources: Mapping[str, bytes]) -> str:
    """The content address of a bundle: sha256 over the flow file's path, all paths and bytes."""
    content = hashlib.sha256(b"%d:%s" % (len(main_path.encode()), main_path.encode()))
    for path in sorted(sources):
        name = path.encode()
        content.update(b"\n%d:%s:%d:" % (len(name), name, len(sources[path])))
        content.update(sources[path])
    return content.hexdigest()


def unpack(archive: bytes) -> tuple[str, dict[str, bytes]]:
    """Path of the flow file and the sources of an archive. Raises ``InvalidInput`` for a bad one."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entries = opened.infolist()
            _check_size(len(entries) - 1, sum(entry.file_size for entry in entries))
            contents = {entry.filename: opened.read(entry) for entry in entries}
        main_path = json.loads(contents.pop(MANIFEST))["main"]
    except (zipfile.BadZipFile, KeyError, ValueError) as exc:
        raise InvalidInput(f"The stored bundle is damaged: {exc}.") from exc
    for path in contents:
        _check_path(path)
    return main_path, contents


def _entry(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _FIXED_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\x00" in path:
        raise InvalidInput(f"The path {path!r} leads out of its bundle.")


def _check_size(count: int, size: int) -> None:
    if count > FILE_COUNT_MAX or size > BYTES_MAX:
        raise InvalidInput(
            f"The bundle has {count:,} files of {size:,} bytes; the limits are {FILE_COUNT_MAX:,} "
            f"files and {BYTES_MAX:,} bytes. Install large code as a package instead."
        )


# --- what a file imports --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What some files import from their flow folder."""

    sources: dict[str, bytes]  # by path: the files and all that they import, in functions too
    hidden: dict[str, str]  # module name -> path, where an installed module of the name is found


def imports_of(folder: Path, start: Mapping[str, bytes]) -> Imports:
    """What these files import, read from their text; files given keep the bytes given."""
    found = dict(start)
    hidden: dict[str, str] = {}
    to_read = list(start)
    while to_read:
        path = to_read.pop()
        for name, imported in _imports_in(path, found[path], folder):
            if imported in found:
                continue
            if is_taken(name.partition(".")[0]):
                hidden[name] = imported
            else:
                found[imported] = (folder / imported).read_bytes()
                to_read.append(imported)
    return Imports(sources=found, hidden=hidden)


def _imports_in(path: str, source: bytes, folder: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # a module whose import was never reached; the bundle has it as it is
    package = PurePosixPath(path).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            yield from _files_of(folder, module)
            for alias in node.names:
                yield from _files_of(folder, [*module, alias.name])
        elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
            yield from _files_of(folder, name.split("."))


def _imported_by_call(node: ast.Call) -> str | None:
    """The module of ``importlib.import_module("name")`` or ``__import__("name")``."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else None
    called = node.func.id if isinstance(node.func, ast.Name) else called
    if called in ("import_module", "__import__") and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None


def _files_of(folder: Path, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and file of each module that importing this one runs: packages on the way, itself."""
    if not parts or not all(part.isidentifier() for part in parts):
        return
    for depth in range(1, len(parts) + 1):
        name = "/".join(parts[:depth])
        for candidate in (f"{name}/__init__.py", f"{name}.py"):
            if (folder / candidate).is_file():
                yield ".".join(parts[:depth]), candidate
                break


# --- load -----------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class LoadedFile:
    """The flows that a file defines, and the sources of the modules that loading it ran."""

    registrations: list[Registration]
    sources: dict[str, bytes]  # by path in the folder

    def flows(self) -> dict[str, Flow]:
        """The flows without fault, by id; of two with one name the first."""
        found: dict[str, Flow] = {}
        for item in self.registrations:
            if not item.faults:
                found.setdefault(item.flow.flow_id, item.flow)
        return found

    def faults(self) -> list[Fault]:
        """What is wrong with the flows, each fault once."""
        found = {one: None for item in self.registrations for one in item.faults}
        first: dict[str, Flow] = {}
        for item in self.registrations:
            flow = item.flow
            if first.setdefault(flow.flow_id, flow) is not flow:
                message = (
                    f"Flow {flow.flow_id!r} is defined twice in this file; the other is at line "
                    f"{first[flow.flow_id].place.line}."
                )
                found[fault(flow.place, message, "Rename one of them, or take it out.")] = None
        return list(found)


def load_file(folder: Path, main_path: str) -> LoadedFile:
    """The flow file has been imported, and so have the modules beside it that it imports.

    Whatever its top-level code raises passes through.
    """
    return _Loaded(folder.resolve(), main_path).load()


def flow_of_bundle(
    digest: str, read_archive: Callable[[], bytes], flow_id: str, cache_dir: Path
) -> Flow:
    """The flow as its stored version defines it; its modules are the ones that imports now find.

    Raises ``NotFound`` where the bundle no longer makes the flow, ``InvalidInput`` for a damaged
    bundle, and whatever the file's own code raises.
    """
    entry = _shelf.loaded.get(digest)
    # Also where it is loaded: its functions may import more of it while they run.
    if entry is None or not bundle_cache.is_used(f"{cache_dir}/{digest}"):
        root = extract(digest, read_archive, cache_dir)
    if entry is None:
        entry = _Loaded(root, json.loads((root / MANIFEST).read_bytes())["main"])
        entry.result = entry.load()
    _shelf.keep(digest, entry)
    _shelf.put(entry)
    assert entry.result is not None
    try:
        return entry.result.flows()[flow_id]
    except KeyError:
        raise _no_such_flow(flow_id, entry.result) from None


def _no_such_flow(flow_id: str, loaded: LoadedFile) -> Exception:
    for item in loaded.registrations:
        if item.flow.flow_id == flow_id:
            return DefinitionError(
                f"The stored source of flow {flow_id!r} is faulty on this host: "
                f"{item.faults[0].message}"
            )
    return NotFound(
        f"The stored source does not define flow {flow_id!r} on this host. Its flow file makes "
        "flows from something outside its folder; make that the same on every host."
    )


def extract(digest: str, read_archive: Callable[[], bytes], cache_dir: Path) -> Path:
    """The folder with the sources of the bundle, complete; made once, whoever asks first."""
    target = cache_dir / digest
    if bundle_cache.is_used(target):
        return target.resolve()
    main_path, sources = unpack(read_archive())
    if digest_of(main_path, sources) != digest:
        raise InvalidInput(
            f"The stored bundle {digest} is damaged: its content has another digest."
        )
    cache_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=cache_dir))
    try:
        for path, source in {**sources, MANIFEST: json.dumps({"main": main_path}).encode()}.items():
            place = scratch / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(source)
        try:
            scratch.rename(target)
        except OSError:  # another process was first: its folder has the same content
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target.resolve()


@dataclass(slots=True, eq=False)
class _Loaded:
    """A folder whose modules can be swapped in and out of ``sys.modules``."""

    root: Path
    main_path: str
    result: LoadedFile | None = None
    modules: dict[str, ModuleType] = field(default_factory=dict)
    search_paths: list[str] = field(default_factory=list)
    sources: dict[str, bytes] = field(default_factory=dict)

    def load(self) -> LoadedFile:
        """The flow file was imported, and imports find its folder; or nothing of it is left."""
        _shelf.put(self)
        try:
            with collecting() as registry:
                _import_main(self)
        except BaseException:
            _shelf.clear()
            raise
        return LoadedFile(
            registrations=[item for item in registry.registrations if self._owns(item.made_by)],
            sources=self._all_sources(),
        )

    def enter(self) -> None:
        """Imports find this folder's modules."""
        sys.modules.pop(_MARK, None)
        sys.modules[_MARK] = ModuleType(_MARK)
        sys.modules.update(self.modules)
        # Last: a module of the folder never hides one of the standard library or of a package,
        # whatever this process has imported before.
        sys.path.extend(self.search_paths or [str(self.root)])
        sys.meta_path.insert(0, _FolderFinder(self.root, self.sources))
        importlib.invalidate_caches()

    def leave(self) -> None:
        """The folder's modules are out of ``sys.modules``, kept for the next time."""
        root = str(self.root)
        self.modules = {
            name: module
            for name, module in _since_mark()
            if not is_own(name) and _is_under(module, root)
        }
        for name in (_MARK, *self.modules):
            sys.modules.pop(name, None)
        self.search_paths = [path for path in sys.path if _within(path, root)]
        sys.path[:] = [path for path in sys.path if not _within(path, root)]
        sys.meta_path[:] = [
            finder
            for finder in sys.meta_path
            if not (isinstance(finder, _FolderFinder) and finder.root == self.root)
        ]

    def _owns(self, made_by: str) -> bool:
        """Whether the flow is this file's: made by it, or by an import from outside the folder."""
        main = str(self.root / self.main_path)
        return made_by == main or not _within(made_by, str(self.root))

    def _all_sources(self) -> dict[str, bytes]:
        """What was imported from the folder, also through a search path of the file's own."""
        found = dict(self.sources)
        root = str(self.root)
        for name, module in _since_mark():
            file = None if is_own(name) else getattr(module, "__file__", None)
            if isinstance(file, str) and file.endswith(".py") and _within(file, root):
                path = Path(file).relative_to(self.root).as_posix()
                if path not in found:
                    found[path] = Path(file).read_bytes()
        return found


class _Shelf:
    """What this process has loaded, and whose modules imports find now: of one folder at a time."""

    def __init__(self) -> None:
        self.active: _Loaded | None = None
        self.loaded: OrderedDict[str, _Loaded] = OrderedDict()  # by digest, oldest use first

    def put(self, wanted: _Loaded) -> None:
        """Imports find this folder's modules, and those of no other folder."""
        if self.active is not wanted:
            self.clear()
            wanted.enter()
            self.active = wanted

    def clear(self) -> None:
        """Imports find no folder's modules."""
        if self.active is not None:
            self.active.leave()
            self.active = None

    def keep(self, digest: str, entry: _Loaded) -> None:
        """The entry is the newest used; the oldest is forgotten when there are too many."""
        self.loaded[digest] = entry
        self.loaded.move_to_end(digest)
        if len(self.loaded) > LOADED_MAX:
            self.loaded.popitem(last=False)


_shelf: Final = _Shelf()


class _RecordingLoader(SourceFileLoader):
    """Loads from source, never from a cache that could be older, and keeps the bytes it ran."""

    def __init__(self, name: str, file: str, root: Path, sources: dict[str, bytes]) -> None:
        super().__init__(name, file)
        self._root = root
        self._sources = sources

    def get_code(self, fullname: str) -> Any:
        file = self.get_filename(fullname)
        source = Path(file).read_bytes()
        self._sources[Path(file).relative_to(self._root).as_posix()] = source
        return self.source_to_code(source, file)


class _FolderFinder(MetaPathFinder):
    """Finds the modules of a flow folder, but for names that an installed module has."""

    def __init__(self, root: Path, sources: dict[str, bytes]) -> None:
        self.root = root
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, [str(self.root)] if path is None else path)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        assert spec.origin is not None
        if not _within(spec.origin, str(self.root)) or is_taken(fullname.partition(".")[0]):
            return None
        return _spec(fullname, Path(spec.origin), self.root, self._sources)


def _spec(name: str, file: Path, root: Path, sources: dict[str, bytes]) -> ModuleSpec:
    loader = _RecordingLoader(name, str(file), root, sources)
    spec = importlib.util.spec_from_file_location(
        name,
        file,
        loader=loader,
        submodule_search_locations=[str(file.parent)] if file.name == "__init__.py" else None,
    )
    assert spec is not None
    return spec


def _import_main(entry: _Loaded) -> None:
    name = _module_name(entry.root, entry.main_path)
    if parent := name.rpartition(".")[0]:
        importlib.import_module(parent)
    if name in sys.modules:  # its package imports it
        return
    spec = _spec(name, entry.root / entry.main_path, entry.root, entry.sources)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)


def _module_name(root: Path, main_path: str) -> str:
    """The name that an import of the flow file would use, or one that nothing else has."""
    parts = PurePosixPath(main_path).with_suffix("").parts
    is_importable = all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
    is_package = all(
        (root.joinpath(*parts[:depth]) / "__init__.py").is_file() for depth in range(1, len(parts))
    )
    if is_importable and is_package and not is_taken(parts[0]):
        return ".".join(parts)
    return f"daylight_flow_{hashlib.sha256(main_path.encode()).hexdigest()[:12]}"


def is_own(name: str) -> bool:
    """Whether the module is Daylight's own: the examples lie in its package."""
    return name == "scheduler_app" or name.startswith("scheduler_app.")


def is_taken(name: str) -> bool:
    """Whether the standard library or an installed package has this top-level name."""
    if name in sys.stdlib_module_names or is_own(name):
        return True
    root = str(_shelf.active.root) if _shelf.active is not None else None
    elsewhere = [path for path in sys.path if root is None or not _within(path or ".", root)]
    found = PathFinder.find_spec(name, elsewhere)
    return found is not None and found.loader is not None  # else a mere folder of that name


def _since_mark() -> list[tuple[str, ModuleType]]:
    """What was imported since the folder's modules are found, in that order.

    A look at the others would write into each, which processes of a stack share as long as nobody does.
    """
    while True:
        found: list[tuple[str, ModuleType]] = []
        try:
            for name in reversed(sys.modules):
                if name == _MARK:
                    break
                found.append((name, sys.modules[name]))
        except (RuntimeError, KeyError):
            continue  # a thread has imported something meanwhile
        return found[::-1]


def _is_under(module: ModuleType, root: str) -> bool:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return _within(file, root)
    return any(_within(str(path), root) for path in getattr(module, "__path__", ()))


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root + os.sep)
