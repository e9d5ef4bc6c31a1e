"""Compile every Triton kernel ahead of time for sm_80, sm_90 and sm_100, without a GPU, and report what each takes.

Prints, of each kernel, registers a thread, local-memory instructions, bytes of stack a thread and bytes of shared memory a
program. Exits with 1 if a kernel spills or does not compile. A spill is a load or store of local memory in the machine code
(or local memory declared): the assembler sometimes keeps an 8-byte stack frame, with 0 bytes of spills, that nothing touches.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inspector  # noqa: F401 - makes logit_kernels importable
from logit_kernels import triton_filters, triton_fused_head, triton_row_statistics

ARCHITECTURES = (80, 90, 100)
NVIDIA_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
LOCAL_ACCESS = re.compile(r"\b(?:STL|LDL)\b")
DTYPES = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes
TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
VOCABULARIES = (49152, 50257, 151936, 262208)

# every parameter of the kernels that is not a compile-time constant; LOGITS is the dtype under test
LOGITS = "*logits"
TYPES = {
    "logits": LOGITS, "raw": LOGITS, "hidden": LOGITS, "weight": LOGITS,
    "own_ids": "*i64", "own_slots": "*i64", "edit_ids": "*i64", "edited": "*i8", "open_segments": "*i8", "edit_values": "*fp32",
    "sums": "*fp32", "counts": "*i32", "segment_maxima": "*fp32", "floats": "*fp32", "integers": "*i64", "flags": "*u8",
    "top_values": "*fp32", "top_ids": "*i64", "raw_maximum": "*fp32", "raw_log_sum": "*fp32",
    "V": "i32", "row_stride": "i32", "raw_stride": "i32", "edit_stride": "i32", "n_segments": "i32", "split_segments": "i32",
    "bias": "*fp32", "own_values": "*fp32", "ids": "*i64", "values": "*fp32",
    "rows": "i32", "H": "i32", "hidden_stride": "i32", "weight_stride": "i32", "n_ids": "i32", "tiles": "i32", "tiles_each": "i32",
    "n_edits": "i32", "splits": "i32", "n": "i32", "k": "i32",
    "temperature": "fp32", "rate": "fp32", "scale": "fp32", "cap": "fp32", "log_min_p": "fp64", "top_p": "fp64",
}  # fmt: skip


@dataclass(frozen=True)
class Build:
    """One specialisation. module, kernel: where it is; constants: its compile-time arguments; aligned: V a multiple of 16."""

    module: str
    kernel: str
    dtype: str
    constants: tuple[tuple[str, object], ...]
    warps: int
    stages: int = 3
    most_registers: int | None = None
    aligned: bool = True

    @property
    def name(self) -> str:
        shown = " ".join(f"{key}={value}" for key, value in self.constants if value is not None)
        return f"{self.kernel} {self.dtype} {shown}{'' if self.aligned else ' unaligned'}"


@dataclass(frozen=True)
class Resources:
    registers: int
    local_accesses: int
    local: int
    stack: int
    shared: int

    @property
    def spills(self) -> bool:
        return self.local_accesses > 0 or self.local > 0


def builds() -> Iterator[Build]:
    for dtype, size in DTYPES.items():
        for vocabulary in VOCABULARIES:
            yield from row_statistics_builds(dtype, size, vocabulary)
        yield from fused_head_builds(dtype)
        for filters in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
            for has_raw in (True, False):
                off = () if has_raw else (("raw", None), ("raw_maximum", None), ("raw_log_sum", None))
                switches = (*zip(("MIN_P", "TOP_K", "TOP_P"), filters), ("RAW", has_raw), ("BLOCK", triton_filters.BLOCK))
                yield Build(
                    "triton_filters", "filter_kernel", dtype, (*switches, *off), warps=8, most_registers=triton_filters.MOST_REGISTERS
                )


def row_statistics_builds(dtype: str, size: int, vocabulary: int) -> Iterator[Build]:
    module, aligned, most = "triton_row_statistics", vocabulary % 16 == 0, triton_row_statistics.MOST_REGISTERS
    segments = triton.cdiv(vocabulary, triton_row_statistics.SEGMENT)
    for adjusted, edited in ((False, False), (True, False), (True, True)):
        none = () if edited else (("own_slots", None), ("edited", None), ("edit_values", None))
        sizes = (("LANE", 16 // size), ("SEGMENTS", triton_row_statistics.BLOCK_SEGMENTS))
        constants = (("ADJUSTED", adjusted), ("EDITED", edited), *sizes, *none)
        yield Build(module, "pass_kernel", dtype, constants, warps=8, most_registers=most if adjusted else None, aligned=aligned)
    for edited in (False, True):
        none = () if edited else tuple((name, None) for name in ("own_slots", "edited", "open_segments", "edit_ids", "edit_values"))
        sizes = (("SPLITS", 2), ("HEADS", triton.next_power_of_2(segments)), ("EDIT_HEADS", 32 if edited else 1))
        warps = triton_row_statistics.finish_warps(segments)
        yield Build(module, "finish_kernel", dtype, (("EDITED", edited), *sizes, *none), warps, most_registers=most)


def fused_head_builds(dtype: str) -> Iterator[Build]:
    module, size = "triton_fused_head", triton_fused_head.SEGMENT
    # float32 is never rounded; half precision unrounded is the same code without a conversion, so once
    heads = (
        ((False, False, False), (True, True, False)) if dtype == "fp32" else ((False, False, True), (True, True, True), (True, True, False))
    )
    for switches in heads:
        head = tuple(zip(("SCALED", "CAPPED", "ROUNDED"), switches))
        gather = (*head, ("COLUMNS", triton_fused_head.COLUMNS), ("BLOCK_H", triton_fused_head.GATHER_DEPTH))
        yield Build(module, "gather_kernel", dtype, gather, warps=4)
        for rows in (8, 1024):
            shape = triton_fused_head.tile_shape(rows, TORCH_DTYPES[dtype])
            warps, stages, most = shape.pop("num_warps"), shape.pop("num_stages"), shape.pop("maxnreg", None)
            for adjusted, biased in ((False, False), (True, False), (True, True)):
                none = () if biased else (("bias", None),)
                constants = (*head, ("ADJUSTED", adjusted), ("BIASED", biased), *shape.items(), ("SEGMENT", size), *none)
                yield Build(module, "tile_kernel", dtype, constants, warps, stages, most)


def compiled(build: Build, architecture: int) -> Resources:
    module = sys.modules.get(f"logit_kernels.{build.module}") or __import__(f"logit_kernels.{build.module}", fromlist=["_"])
    kernel = getattr(module, build.kernel)
    constants = dict(build.constants)
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else TYPES[name].replace("logits", build.dtype) for name in names}
    always = {"split_segments", "H", "hidden_stride", "weight_stride"}
    wide = always | {"V", "row_stride", "raw_stride"} if build.aligned else always
    attributes = {
        (place,): [["tt.divisibility", 16]] for place, name in enumerate(names) if name in wide or signature[name].startswith("*")
    }
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs=attributes,
    )
    options = {"num_warps": build.warps, "num_stages": build.stages, "maxnreg": build.most_registers}
    binary = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage = tool_output("cuobjdump", "--dump-resource-usage", file.name)
        code = tool_output("nvdisasm", "--print-code", file.name)
    used = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return Resources(used["REG"], len(LOCAL_ACCESS.findall(code)), used["LOCAL"], used["STACK"], binary.metadata.shared)


def tool_output(tool: str, *arguments: str) -> str:
    return subprocess.run([NVIDIA_TOOLS / tool, *arguments], capture_output=True, text=True, check=True).stdout


def outcome(job: tuple[Build, int]) -> Resources | str:
    warnings.filterwarnings("ignore")
    try:
        return compiled(*job)
    except Exception as error:  # a compiler error of any kind is a line of the report and a failed run
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="builds whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    chosen = [build for build in dict.fromkeys(builds()) if arguments.only in build.name]
    width = max((len(build.name) for build in chosen), default=0)
    jobs = [(build, architecture) for build in chosen for architecture in ARCHITECTURES]
    failed = 0
    print(f"{'kernel':{width}}  arch  registers  local access  stack  shared")
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for (build, architecture), result in zip(jobs, pool.map(outcome, jobs)):
            if isinstance(result, str):
                failed += 1
                print(f"{build.name:{width}}  sm_{architecture}: {result}")
                continue
            failed += result.spills
            numbers = f"{result.registers:9}  {result.local_accesses:12}  {result.stack:5}  {result.shared:6}"
            print(f"{build.name:{width}}  {architecture:4}  {numbers}{'  SPILLS' if result.spills else ''}", flush=True)
    print(f"{len(jobs)} builds, {failed} failed or spilled")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
