"""check_layers.py must find each kind of forbidden include, and nothing else."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import check_layers  # noqa: E402

GOOD = {
    "base/a.h": "#include <vector>",
    "config/a.cc": '#include "base/a.h"\n#include "config/a.h"\n#include <nlohmann/json.hpp>',
    "chat/a_test.cc": '#include "tokenizer/a.h"',
    "store/a.cc": '#include "checkpoint/a.h"\n#include "parallel/a.h"',
    "grammar/a.cc": '#include "tokenizer/a.h"',
    "ops/a.cc": '#include "ops/a.h"\n#include "base/a.h"',
    "backend/cpu/select.cc": '#include "ops/a.h"\n#include "backend/cpu/b.h"\n#include <string>',
    "backend/cpu/generic/a.cc": "#include <cmath>",
    "backend/cpu/avx2/a.cc": '#include <immintrin.h>\n#include <string.h>\n'
                             '#include "ops/a.h"\n#include "base/types.h"\n'
                             '#include "backend/cpu/avx2/a.h"\n#include "backend/cpu/a.h"',
    "backend/cpu/avx2/a_test.cc": "#include <vector>",
    "model/a.cc": '#include "ops/a.h"\n#include "kv/a.h"',
    "engine/a.cc": '#include "model/a.h"',
    "cli/a.cc": '#include "server/a.h"\n#include "engine/a.h"',
}
BAD = {
    "base/a.h": '#include "config/a.h"',
    "base/a_test.cc": '#include "config/a.h"',
    "config/a.cc": '#include "checkpoint/a.h"',
    "chat/a.cc": '#include "tokenizer/a.h"',
    "sampler/a.cc": '  #  include "kv/a.h"',
    "ops/a.cc": '#include "backend/cpu/a.h"',
    "backend/cpu/a.cc": '#include "model/a.h"',
    "model/a.cc": '#include "engine/a.h"',
    "engine/a.cc": '#include "cli/a.h"',
    "server/a.cc": '#include "cli/a.h"',
    "cli/a.cc": '#include "a.h"',
    "cli/b.cc": '#include "../base/a.h"',
    "stray/a.cc": "",
    "backend/cpu/avx2/a.cc": "#include <cmath>",
    "backend/cpu/avx2/b.cc": '#include "base/formats.h"',
    "backend/cpu/avx2/c.cc": '#include "backend/cpu/avx512/a.h"',
    "backend/cpu/a.inc.h": "#include <vector>",
    "backend/cpu/avx2/d.cc": '#include "model/a.h"',
}


def problems(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        return check_layers.check(pathlib.Path(folder))[1]


class CheckLayers(unittest.TestCase):
    def test_allowed_includes_pass(self):
        self.assertEqual(problems(GOOD), [])

    def test_each_forbidden_include_is_found(self):
        for name, text in BAD.items():
            with self.subTest(name):
                found = problems({name: text})
                self.assertEqual(len(found), 1)
                self.assertTrue(found[0].startswith(name))


unittest.main()
