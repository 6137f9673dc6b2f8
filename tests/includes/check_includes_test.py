"""Proves that check_includes.py finds what it is there to find."""
import pathlib
import tempfile
import unittest

import check_includes


def problems_of(path, text):
    """What the checker says of a tree that holds one file."""
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        problems, count = check_includes.check_tree(root)
        assert count == 1
        return problems


class Edges(unittest.TestCase):
    def test_refuses_forbidden_edges(self):
        for path, include in [
                ("server/planner/dacp.cc", "<chrono>"),
                ("server/planner/dacp.cc", "<thread>"),
                ("server/planner/dacp.cc", "<mutex>"),
                ("server/planner/dacp.cc", "<atomic>"),
                ("server/planner/dacp.cc", "<iostream>"),
                ("server/planner/dacp.cc", "<fstream>"),
                ("server/planner/dacp.cc", "<random>"),
                ("server/planner/dacp.cc", "<unordered_map>"),
                ("server/planner/dacp.cc", "<unistd.h>"),
                ("server/planner/dacp.cc", '"absl/time/clock.h"'),
                ("server/planner/dacp.cc", '"absl/synchronization/mutex.h"'),
                ("server/planner/dacp.cc", '"absl/random/random.h"'),
                ("server/planner/dacp.cc", '"skrull/server/convert.h"'),
                ("server/planner/dacp.cc", '"skrull/v1/plan.pb.h"'),
                ("server/planner/dacp.cc", '"grpcpp/grpcpp.h"'),
                ("server/planner/dacp.cc", '"dacp.h"'),
                ("server/planner/baselines/x.cc", "<ctime>"),
                ("server/planner/layout.cc", '"absl/strings/str_cat.h"'),
                ("server/planner/layout.cc", '"skrull/planner/job.h"'),
                ("server/store.cc", '"skrull/client/planner_client.h"'),
                ("server/store.cc", '"skrull/tests/support/x.h"'),
                ("client/cpp/planner_client.cc", '"skrull/planner/planner.h"'),
                ("client/cpp/planner_client.cc", '"skrull/server/convert.h"'),
                ("client/cpp/planner_client.cc", '"skrull/cli/output.h"'),
                ("client/cpp/local_planner.cc", '"skrull/server/store.h"'),
                ("client/cli/main.cc", '"skrull/server/plan_store.h"'),
                ("cuda/executor.cc", '"grpcpp/grpcpp.h"'),
                ("cuda/executor.cc", '"skrull/planner/planner.h"'),
                ("cuda/executor.cc", '"skrull/v1/plan.pb.h"'),
                ("cuda/executor.cc", '"skrull/client/planner_client.h"'),
                ("cuda/executor.cc", '"skrull/cuda/examples/t/model.h"'),
                ("cuda/executor.cc", '"skrull/cuda/profile/cost.h"'),
                ("cuda/profile/fit.cc", '"skrull/cuda/examples/t/model.h"'),
                ("cuda/profile/fragment.cc", '"skrull/v1/job.pb.h"'),
                ("cuda/profile/cost.cc", '"skrull/planner/cost_model.h"'),
                ("cuda/examples/t/main.cc", '"skrull/v1/plan.pb.h"'),
                ("cuda/examples/t/main.cc", '"skrull/planner/planner.h"'),
        ]:
            with self.subTest(path=path, include=include):
                problems = problems_of(path, f"\n#include {include}\n")
                self.assertEqual(len(problems), 1)
                self.assertTrue(problems[0].startswith(f"{path}:2: "))
                self.assertIn(include.strip('<>"'), problems[0])

    def test_sees_through_spaces_in_the_directive(self):
        self.assertTrue(problems_of("server/planner/a.cc",
                                    "  #  include  <chrono>\n"))

    def test_refuses_impure_calls_in_the_planner(self):
        self.assertTrue(problems_of("server/planner/a.cc", "x = rand();\n"))
        self.assertTrue(problems_of("server/planner/a.cc", 'fopen("a", "r");\n'))
        self.assertEqual(problems_of("server/planner/a.cc",
                                     "strand(); snprintf(a, 1, b);\n"
                                     "// as rand() does\n"), [])
        self.assertEqual(problems_of("server/clock.cc", "rand();\n"), [])

    def test_allows_the_edges_of_the_architecture(self):
        for path, include in [
                ("server/planner/dacp.cc", "<vector>"),
                ("server/planner/dacp.cc", '"absl/status/statusor.h"'),
                ("server/planner/dacp.cc", '"skrull/planner/layout.h"'),
                ("server/planner/layout.cc", '"skrull/planner/layout.h"'),
                ("server/store.cc", "<sqlite3.h>"),
                ("server/convert.cc", '"skrull/v1/plan.pb.h"'),
                ("client/cpp/planner_client.cc", '"skrull/planner/layout.h"'),
                ("client/cpp/local_planner.cc", '"skrull/server/convert.h"'),
                ("client/cli/main.cc", '"skrull/server/convert.h"'),
                ("cuda/executor.cc", '"skrull/planner/rank_plan.h"'),
                ("cuda/profile/log.cc", '"nlohmann/json.hpp"'),
                ("cuda/examples/t/main.cc", '"skrull/cuda/profile/log.h"'),
                ("cuda/examples/t/main.cc", '"skrull/cuda/executor.h"'),
                ("cuda/examples/t/main.cc",
                 '"skrull/client/planner_client.h"'),
                ("tests/e2e/x_test.cc", '"skrull/server/store.h"'),
        ]:
            with self.subTest(path=path, include=include):
                self.assertEqual(problems_of(path, f"#include {include}\n"), [])

    def test_refuses_a_folder_that_is_no_room(self):
        self.assertTrue(problems_of("client/java/x.cc", ""))


class Guards(unittest.TestCase):
    def guarded(self, guard):
        return f"// X.\n#ifndef {guard}\n#define {guard}\n#endif  // {guard}\n"

    def test_accepts_the_guard_of_the_path(self):
        self.assertEqual(problems_of(
            "server/planner/dacp.h",
            self.guarded("SKRULL_SERVER_PLANNER_DACP_H_")), [])

    def test_refuses_other_guards(self):
        for text in (self.guarded("SKRULL_DACP_H_"), "#pragma once\n", "",
                     self.guarded("SKRULL_SERVER_PLANNER_DACP_H_").replace(
                         "#endif  // SKRULL_SERVER_PLANNER_DACP_H_", "#endif")):
            with self.subTest(text=text):
                self.assertEqual(
                    len(problems_of("server/planner/dacp.h", text)), 1)


if __name__ == "__main__":
    unittest.main()
