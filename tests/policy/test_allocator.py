"""Freed memory stays in the process, whatever its size."""

import platform
import subprocess
import sys

import pytest

TOUCHES_AGAIN = """
import resource, torch
from archer.policy.allocator import keep_freed_memory

def faults(elements):
    block = torch.empty(elements, dtype=torch.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block[-1000 * 4096 :: 4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
print(*(faults({elements}) for _ in range(8)))
"""


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="glibc on Linux only"
)
@pytest.mark.parametrize("elements", [2**24, 5 * 2**29])
def test_pages_of_a_freed_block_are_not_fetched_again(elements):
    # Only the last thousand pages of the block are touched, so little memory is really used.
    code = TOUCHES_AGAIN.format(elements=elements)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    # The heap takes a few rounds to settle.
    first, *_, last = map(int, out.split())
    assert first > 500
    assert last < first / 10
