#!/usr/bin/env python3
"""Does check_ptxas.py find what it is for?"""
import unittest

import check_ptxas

SYMBOL = "_ZN6skrull4exec5flash13ForwardKernelINS0_7kernels4Bf16ELi64EEEvNS1_E"
BLOCKS = {"ForwardKernel": 2}


def report(stack=0, spills=0, registers=255, architecture="sm_80"):
    return f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{SYMBOL}' for '{architecture}'
ptxas info    : Function properties for {SYMBOL}
    {stack} bytes stack frame, {spills} bytes spill stores, 0 bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 456 bytes cmem[0]
"""


def problems(text, kernels=1, blocks=None):
    return list(check_ptxas.check(list(check_ptxas.read(text)), kernels,
                                  BLOCKS if blocks is None else blocks))


class CheckPtxasTest(unittest.TestCase):

    def test_accepts_what_is_right(self):
        self.assertEqual(problems(report()), [])
        self.assertEqual(problems(report() + report(architecture="sm_90a")),
                         [])

    def test_finds_a_stack_and_spills(self):
        self.assertIn("8 bytes of stack", problems(report(stack=8))[0])
        self.assertIn("16 of spills", problems(report(spills=16))[0])

    def test_finds_too_many_registers(self):
        self.assertIn("let 2 blocks fit",
                      problems(report(), blocks={"ForwardKernel": 3})[0])
        self.assertEqual(
            problems(report(registers=168), blocks={"ForwardKernel": 3}), [])

    def test_knows_kernels_that_are_no_templates(self):
        symbol = "_ZN6skrull4exec8internal14FoldRowsKernelENS1_7RowJobsE"
        text = report(registers=64).replace(SYMBOL, symbol)
        self.assertEqual(problems(text, blocks={"FoldRowsKernel": 8}), [])
        self.assertIn("let 8 blocks fit",
                      problems(text, blocks={"FoldRowsKernel": 9})[0])

    def test_finds_kernels_that_are_missing(self):
        self.assertEqual(problems(""), ["no kernel in any report"])
        self.assertEqual(problems(report(), kernels=2),
                         ["1 kernels for sm_80, not 2"])
        self.assertIn("no --blocks", problems(report(), blocks={})[0])


if __name__ == "__main__":
    unittest.main()
