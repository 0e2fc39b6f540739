"""The linker's LLVM passes: what is inlined."""

from __future__ import annotations

from candle_convert.runtime.jit import linker
from candle_convert.runtime.jit.numba_lazy import binding


def optimized(count, attribute, unroll):
    """Assembly of a kernel that stores the result of a function of so many instructions, after the linker's passes."""
    lines = [f"  %v{index} = mul i64 %v{index - 1}, %v0" for index in range(1, count)]
    text = [f"define i64 @power(i64 %v0) {attribute} {{", *lines, f"  ret i64 %v{count - 1}", "}"]
    entry = [
        "  %v = load i64, ptr %block",
        "  %w = call i64 @power(i64 %v)",
        "  store i64 %w, ptr %block",
        "  ret void",
    ]
    text += [f"define void @{linker.ENTRY}(ptr %block, i64 %part, i64 %parts) {{", *entry, "}", ""]
    module = binding.parse_assembly("\n".join(text))
    linker.compile_module(module, unroll=unroll)
    return str(module)


def test_large_functions_are_called_where_loops_are_not_unrolled():
    linker.target()
    assert "call " in optimized(linker.LARGE + 1, "", False)
    assert "call " not in optimized(linker.LARGE + 1, "", True)
    assert "call " not in optimized(linker.LARGE + 1, "alwaysinline", False)
    assert "call " not in optimized(linker.LARGE // 2, "", False)
