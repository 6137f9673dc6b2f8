"""Proves that run_docs.py runs what it should and fails where it should."""
import pathlib
import tempfile
import unittest

import run_docs


def run(page):
    with tempfile.TemporaryDirectory() as root:
        path = pathlib.Path(root, "page.md")
        path.write_text(page, encoding="utf-8")
        return run_docs.run_page(path, pathlib.Path(root), pathlib.Path(root))


class RunDocs(unittest.TestCase):
    def test_runs_only_marked_blocks(self):
        self.assertEqual(run("```sh\nfalse\n```\n\n"
                             "<!-- run -->\n```sh\ntrue\n```\n"), 1)

    def test_fails_with_the_command(self):
        with self.assertRaisesRegex(RuntimeError, "ended with 1"):
            run("<!-- run -->\n```sh\nfalse\ntrue\n```\n")

    def test_blocks_of_a_page_share_a_shell(self):
        self.assertEqual(run("<!-- run -->\n```sh\na=3\n```\n"
                             "<!-- run -->\n```sh\ntest $a = 3\n```\n"), 2)

    def test_compares_output(self):
        page = ("<!-- run -->\n```sh\necho one 17 two\necho three\n```\n"
                "<!-- output -->\n```text\n%s\n```\n")
        self.assertEqual(run(page % "one ... two\nthree"), 1)
        for wrong in ("three\none", "four", "one 18 two"):
            with self.subTest(wrong=wrong), self.assertRaises(RuntimeError):
                run(page % wrong)

    def test_refuses_a_mark_before_another_block(self):
        with self.assertRaises(ValueError):
            run("<!-- run -->\n```python\n1\n```\n")

    def test_ends_what_a_page_started(self):
        self.assertEqual(run("<!-- run -->\n```sh\nsleep 1000 &\n```\n"), 1)


if __name__ == "__main__":
    unittest.main()
