"""f16 conversion routines that LLVM calls on processors without f16 instructions."""

from __future__ import annotations

from typing import Any

from ..base.process_cache import PROCESS, owned

_NAMES = ("__extendhfsf2", "__truncsfhf2")
_TEXT = """
define float @__extendhfsf2(half %x) {
  %half = bitcast half %x to i16
  %word = zext i16 %half to i32
  %magnitude = and i32 %word, 32767
  %moved = shl i32 %magnitude, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %infinite = or i32 %moved, 2139095040
  %special = icmp uge i32 %moved, 260046848
  %chosen = select i1 %special, i32 %infinite, i32 %finite
  %sign = and i32 %word, 32768
  %place = shl i32 %sign, 16
  %bits = or i32 %chosen, %place
  %result = bitcast i32 %bits to float
  ret float %result
}
define half @__truncsfhf2(float %x) {
  %word = bitcast float %x to i32
  %magnitude = and i32 %word, 2147483647
  %size = bitcast i32 %magnitude to float
  %raised = fadd float %size, 5.0e-1
  %counted = bitcast float %raised to i32
  %tiny = sub i32 %counted, 1056964608
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %biased = sub i32 %magnitude, 939520001
  %even = add i32 %biased, %odd
  %normal = lshr i32 %even, 13
  %is_tiny = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_tiny, i32 %tiny, i32 %normal
  %is_large = icmp uge i32 %magnitude, 1199566848
  %bounded = select i1 %is_large, i32 31744, i32 %finite
  %payload = and i32 %shifted, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %chosen = select i1 %is_nan, i32 %nan, i32 %bounded
  %high = lshr i32 %word, 16
  %sign = and i32 %high, 32768
  %bits = or i32 %chosen, %sign
  %short = trunc i32 %bits to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""
_held: list[Any] = owned([], PROCESS)


def link_into(module: Any) -> None:
    """Define the functions in an optimized LLVM module, whose conversions become calls of them."""
    from llvmlite import binding

    text = binding.parse_assembly(_TEXT)
    text.triple, text.data_layout = module.triple, str(module.data_layout)
    module.link_in(text)


def install() -> None:
    """Register the functions as symbols for all later compilations."""
    from llvmlite import binding

    if _held or not binding.get_default_triple().startswith("x86_64"):
        return
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine("x86-64", opt=2)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(_TEXT), machine)
    engine.finalize_object()
    for name in _NAMES:
        binding.add_symbol(name, engine.get_function_address(name))
    _held.append(engine)
