#!/usr/bin/env python3
"""Mutation test: changes one formula at a time and expects the suite to fail.

usage: tools/mutate.py [--only ID[,ID...]] [--report docs/mutations.md]

Works on a copy of HEAD in build/mutants, so the working tree is not touched. Each mutation replaces one piece of source text, builds the
release preset and runs the tests that look at the model (CTest, quickest first) until one fails. A mutation that no test notices
is a hole in the suite: it is printed as SURVIVED and the exit status is 1. Run by hand (about an hour on two cores), not part of
scripts/test.sh.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "mutants"
BUILD = COPY / "build" / "release"

# CTest names, quickest first, of the tests that can notice a wrong formula. What golden_sets_test runs stands in front of it, set by
# set: it is the quickest way to most answers.
QUICK_TESTS = ["published_numbers_test", "engram_hash_test", "kv_pool_test"]
TESTS = ["formats_test", "cpu_rows_test", "cpu_elementwise_test", "cpu_route_test", "cpu_attention_test",
         "cpu_index_select_test", "linear_test", "experts_test", "same_bits_test"]
GOLDEN = [("tiny", "fp32"), ("tiny-odd", "fp32"), ("tiny-window", "fp32"), ("tiny", "release"), ("tiny-odd", "release"),
          ("tiny-window", "release"), ("tiny", "trn2"), ("tiny-odd", "trn2")]
LEVELS = ["auto", "generic"]    # model code shows at every level, scalar references at the lowest

M = "src/model/"
R = "src/ops/ref/"

E = "src/engine/"
K = "src/kv/"
C = "src/chat/"
DRAFTS = ["planted_drafts_test", "scheduler_test", "rollback_test", "forced_drafts_test"]
KV = ["kv_pool_test", "scheduler_test", "load_test"]

# id, what is wrong with it, file, text (must occur once), replacement; behind them the tests to run, if not those of the model
MUTATIONS = [
    ("q-head-norm", "norm of q heads added after wq_b, as in the previous model (B01)", M + "attention.cc",
     '  s.Rope("attn.rope_q",',
     '  s.RmsNorm("mutant", q, w.kv_norm, q, nullptr, s.c.head_dim, Start::kAfterAll);\n  s.Rope("attn.rope_q",'),
    ("clamp-dropped", "SwiGLU clamp dropped (B03)", M + "moe.cc", ".limit = s.c.swiglu_limit", ".limit = 0"),
    ("clamp-ref", "gate clamped on both sides", R + "moe.cc", "return g > limit ? limit : g;",
     "return g > limit ? limit : g < -limit ? -limit : g;"),
    ("fp4-ties", "fp4 quantiser rounds ties up (B04)", "src/base/formats.h", "if (m <= 0.25f) return sign;",
     "if (m < 0.25f) return sign;"),
    ("topk-ties", "equal index scores: the higher index wins", R + "attention.cc",
     "a.score == b.score && a.index < b.index", "a.score == b.score && a.index > b.index"),
    ("topk-ties-vector", "vector kernels drop one of the equal scores at the border", "src/backend/cpu/index_selection.inc.h",
     "e.order == t.order && t.n_equal-- <= 0", "e.order == t.order && t.n_equal-- <= 1"),
    ("expert-ties", "router: the later of two equal experts wins", R + "moe.cc", "biased > best", "biased >= best"),
    ("yarn-off", "YaRN off", M + "forward.cc", "if (!compressed || !c.rope_scaling) return freq;", "return freq;\n"
     "  if (!c.rope_scaling) return freq;"),
    ("yarn-everywhere", "window layers rotate with the compressed layers' table", M + "attention.cc",
     "compressed ? s.yarn : s.plain", "true || compressed ? s.yarn : s.plain"),
    ("inverse-rope", "inverse rotation of the attention output dropped", M + "attention.cc", "rope, true,",
     "rope, false,"),
    ("sink", "sink left out of the denominator", R + "attention.cc",
     "const float total = softmax.total +", "const float total = softmax.total + 0 *"),
    ("sink-in-maximum", "attention weights rounded against the first block's maximum", R + "attention.cc",
     "const float new_top = std::max(top, *std::max_element(scores, scores + n));",
     "const float new_top = top > -1e29f ? top : *std::max_element(scores, scores + n);"),
    ("nibbles", "fp4 nibbles in the other order", R + "linear.cc", "k % 2 == 0 ? data[k / 2] & 15 : data[k / 2] >> 4",
     "k % 2 == 1 ? data[k / 2] & 15 : data[k / 2] >> 4"),
    ("fp4-scales", "fp4 scales in the other order", R + "linear.cc", "E2m1ToFloat(code) * Ue8m0ToFloat(scale[k / 32])",
     "E2m1ToFloat(code) * Ue8m0ToFloat(scale[(w.cols - 1 - k) / 32])"),
    ("fp8-scale-rows", "fp8 scale tile of a slice counted from the slice", R + "linear.cc", "(row + w.scale_row0) / 32",
     "row / 32"),
    ("scale-zero", "scale byte 0 read as zero", "src/base/formats.h", "byte == 0 ? 0x1p-127f", "byte == 0 ? 0.0f"),
    ("engram-columns", "Engram columns ordered head by head", M + "engram_hash.cc",
     "*row++ = mixed % table.primes[column] + table.offsets[column];",
     "row[head * (max_ngram_ - 1) + s - 1] = mixed % table.primes[column] + table.offsets[column];\n"
     "          if (column + 1 == columns()) row += columns();"),
    ("engram-doubles", "Engram products through double (B05)", M + "engram_hash.cc",
     "mixed % table.primes[column]", "static_cast<int64_t>(static_cast<double>(mixed)) % table.primes[column]"),
    ("engram-late", "Engram after the layer instead of before it", M + "forward.cc",
     '    if (engram) AddEngram(s, layer);\n'
     '    AddCollapse(s, "hc.collapse", s.pre, engram || layer == 0 ? Start::kAfterAll : Start::kOnOwn);\n'
     "    if (m.draft_rows) AddTap(s, layer, features);\n    AddBlock(s, layer);",
     '    AddCollapse(s, "hc.collapse", s.pre, Start::kAfterAll);\n'
     "    if (m.draft_rows) AddTap(s, layer, features);\n    AddBlock(s, layer);\n    if (engram) AddEngram(s, layer);"),
    ("engram-joint-norm", "Engram key norm left out", R + "elementwise.cc",
     "InverseRms(h, d_count, a.eps) * InverseRms(key, d_count, a.eps)", "InverseRms(h, d_count, a.eps)"),
    ("tap-after", "draft taps read after the layer", M + "forward.cc",
     "    if (m.draft_rows) AddTap(s, layer, features);\n    AddBlock(s, layer);",
     "    AddBlock(s, layer);\n    if (m.draft_rows) AddTap(s, layer, features);"),
    ("comb-transposed", "stream mix transposed", R + "elementwise.cc", "a.comb[(r * n + s) * n + j]",
     "a.comb[(r * n + j) * n + s]"),
    ("sinkhorn-19", "one Sinkhorn iteration too few", R + "elementwise.cc", "for (int i = 1; i < iterations; ++i)",
     "for (int i = 2; i < iterations; ++i)"),
    ("two-pass-mhc", "pre-mix of the same sublayer instead of the previous one", M + "block.cc",
     's.RmsNorm("hc.norm", s.collapsed, w.attn_norm, x, xq, hidden, Start::kBeside);',
     'AddMix(s, "mutant", w.hc_attn, attn);\n  AddCollapse(s, "mutant", attn.pre, Start::kAfterAll);\n'
     '  s.RmsNorm("hc.norm", s.collapsed, w.attn_norm, x, xq, hidden, Start::kAfterAll);'),
    ("newest-block", "newest candidate block not pinned", R + "attention.cc", "newest ? INFINITY : block_best",
     "newest && false ? INFINITY : block_best"),
    ("candidates-ignored", "re-indexing layers ignore the candidate blocks", M + "indexer.cc",
     "c.uses_candidates(layer) ? Candidates::kRead : Candidates::kNone", "Candidates::kNone"),
    ("visibility", "a ratio-2 row visible one token early", R + "attention.cc",
     "(int64_t{a.positions[r]} + 1) / a.ratio", "(int64_t{a.positions[r]} + a.ratio) / a.ratio"),
    ("window", "window one row short", R + "attention.cc", "t - a.window + 1)", "t - a.window + 2)"),
    ("group-position", "compressed row at its last token's position", M + "forward.cc",
     '"rope.group2", s.m.rope_yarn, -1', '"rope.group2", s.m.rope_yarn, 0'),
    ("key-after-rope", "index key from the rotated latent", M + "compressor.cc",
     's_.Linear("indexer.wk", latent_, w_.wk, key_, {.n_rows = &s_.in->n_groups[ratio_], .start = start});',
     's_.b.Add("mutant", s_.k.rope, RopeArgs{.n_rows = &s_.in->n_groups[ratio_], .x = latent_, .heads = 1,\n'
     '           .head_dim = static_cast<int32_t>(s_.c.head_dim),\n'
     '           .rope = s_.Rotation(s_.group[ratio_], s_.in->group_rows[ratio_]),\n'
     '           .inverse = false, .round = s_.num.bf16}, start);\n'
     '  s_.Linear("indexer.wk", latent_, w_.wk, key_, {.n_rows = &s_.in->n_groups[ratio_]});'),
    ("index-rope", "index queries not rotated", M + "indexer.cc",
     '  s_.Rope("indexer.rope_q", q_, heads, dim, s_.yarn, false, Start::kOnOwn);\n', ""),
    ("index-score-rounding", "index scores not rounded", M + "indexer.cc",
     "a.round_scores = s.num.index_scores_bf16", "a.round_scores = false"),
    ("index-q-unquantised", "index queries not quantised", M + "indexer.cc", "if (!s_.num.index_fp4)", "if (true)"),
    ("kv-owner", "compressed rows of the wrong owner", M + "attention.cc",
     "s.m.kv.compressed_rows(s.c.kv_owner(layer))", "s.m.kv.compressed_rows(s.c.kv_source_layer_ids[0])"),
    ("wo-a-quantised", "input of wo_a quantised", M + "attention.cc", 's.Linear("attn.wo_a", o,',
     's.Quantise("mutant", o, s.c.num_attention_heads * s.c.head_dim, Start::kAfterAll);\n  s.Linear("attn.wo_a", o,'),
    ("router-bias", "routing weights with the selection bias", R + "moe.cc",
     "weights[i] = RouterScore(logits[ids[i]]);",
     "weights[i] = RouterScore(logits[ids[i]]) + LoadF32(a.bias + 4 * int64_t{ids[i]});"),
    ("router-scaling", "routed scaling factor dropped", M + "moe.cc", ".normalize = topk > 1, .scaling = s.c.routed_scaling_factor",
     ".normalize = topk > 1, .scaling = 1"),
    ("shared-weighted", "expert sum not rounded before the shared expert joins", R + "moe.cc",
     "const float y = RoundIf(a.round, Dot(a.act", "const float y = RoundIf(false, Dot(a.act"),
    ("expert-input", "expert inputs not quantised", M + "block.cc", "s.num.fp8_expert_inputs ? xq : nullptr",
     "nullptr"),
    ("pool-softmax", "pooling by sigmoid of one score", R + "attention.cc", "e1 = std::exp(s1 - top)",
     "e1 = std::exp(s0 - top)"),
    ("final-collapse", "final collapse with stream 0 only", M + "forward.cc",
     '  AddCollapse(s, "head.collapse", s.pre, s.m.draft_rows ? Start::kAfterAll : Start::kOnOwn);',
     '  s.b.Add("mutant", s.k.embed, EmbedArgs{.n_rows = s.n_rows(), .ids = s.in->ids, .table = s.m.weights.embed,\n'
     '          .streams = s.b.Temp<float>("mutant", s.rows() * 8 * hidden), .pre = s.pre,\n'
     '          .n_streams = static_cast<int32_t>(s.c.hc_mult)});\n'
     '  AddCollapse(s, "head.collapse", s.pre, Start::kAfterAll);'),
    ("rms-eps", "norm epsilon 1e-2", R + "elementwise.cc", "static_cast<float>(sum / static_cast<double>(n)) + eps",
     "static_cast<float>(sum / static_cast<double>(n)) + eps + 1e-2f"),
    ("halves", "rotary pairs half-split instead of adjacent", R + "elementwise.cc",
     "const float even = pair[0], odd = pair[1];", "const float even = pair[1], odd = pair[0];"),
    ("q8-floor", "quantiser without the 1e-4 floor", R + "rows.cc", "LargestMagnitude(x + 32 * b, 32, 1e-4f)",
     "LargestMagnitude(x + 32 * b, 32, 1e-30f)"),
    ("ring", "window ring one row short of a step", "src/kv/kv_pool.h", "return window + max_step_rows + draft_rows;",
     "return window + max_step_rows + draft_rows - 2;"),

    # Draft tokens.
    ("rollback", "rollback keeps the row of the first rejected draft", E + "scheduler.cc",
     "rows.n_drafts + std::ssize(tokens) - 1);",
     "rows.n_drafts + std::ssize(tokens) - (std::ssize(tokens) <= rows.n_drafts ? 0 : 1));", DRAFTS),
    ("rollback-tokens", "rejected drafts stay in the text", E + "scheduler.cc",
     "seq->tokens.resize(static_cast<size_t>(seq->n_known)); seq->tokens.insert(seq->tokens.end(), tokens.begin(),",
     "seq->tokens.insert(seq->tokens.end(), tokens.begin(),", DRAFTS),
    ("philox-position", "noise of a verified row is that of the next position", E + "engine.cc",
     "const int64_t position = std::ssize(tokens);",
     "const int64_t position = std::ssize(tokens) + (draft == kNoDraft ? 0 : 1);", DRAFTS),
    ("philox-draft", "drafts are drawn with the noise of their anchor's position", "src/ops/ref/draft.cc",
     "static_cast<uint32_t>(a.positions[row] + 1)", "static_cast<uint32_t>(a.positions[row])",
     ["draft_test", "draft_acceptance_test"]),
    ("stale-confidence", "the depth follows the confidence of the block's first draft", E + "depth_policy.cc",
     "Chance(confidence[next], depth)", "Chance(confidence[next - static_cast<size_t>(depth)], depth)", ["scheduler_test"]),
    ("draft-ring", "window ring without room for the rows of a draft", K + "kv_pool.h",
     "return window + max_step_rows + draft_rows;", "return window + max_step_rows;", KV[:1] + DRAFTS),
    ("draft-rows", "rows of a draft lie one place too far behind the sequence", K + "kv_pool.cc",
     "AddRow(rows.slot, s, i == 0 ? rows.anchor : noise, first + i,", "AddRow(rows.slot, s, i == 0 ? rows.anchor : noise, first + i + 1,",
     KV[:1] + ["draft_acceptance_test"]),
    ("draft-budget", "drafts take rows from younger answers", E + "scheduler.cc", "budget - 1 - younger", "budget - 1 - 0 * younger",
     ["scheduler_test"]),
    ("draft-end", "drafts go on behind the end of the answer", E + "scheduler.cc", "seq.max_tokens - seq.n_known - 1",
     "seq.max_tokens - seq.n_known", ["scheduler_test", "forced_drafts_test"]),

    # Grammars.
    ("mask-end", "an answer may end anywhere", "src/grammar/token_masks.cc", "if (automaton_.CanEnd(state)) mask.Allow(token);",
     "if (true) mask.Allow(token);", ["grammar_test"]),
    ("mask-markup", "the markup token is allowed where its bytes are, without markup", "src/grammar/token_masks.cc",
     "if (trie_->markup_token() && automaton_.grammar().has_markup())", "if (trie_->markup_token())", ["grammar_test"]),
    ("mask-subtree", "a byte that is not allowed skips its token only", "src/grammar/token_masks.cc", "i = node.next;", "++i;",
     ["grammar_test"]),
    ("mask-drafts", "rows with a draft behind them have no mask", E + "engine.cc",
     "allowed = Allowed(active);", "allowed = draft == kNoDraft ? Allowed(active) : AllowedTokens();", DRAFTS[-1:]),

    # Prefix cache.
    ("snapshot-late", "snapshots hold the rows up to the token before", K + "kv_pool.cc", "ForEachRing(slot, tokens, [to]",
     "ForEachRing(slot, tokens - 1, [to]", KV),
    ("snapshot-window", "snapshots hold one window row too few", K + "kv_pool.cc", "shape_.window_row_bytes, shape_.window);",
     "shape_.window_row_bytes, shape_.window - 1);", KV),
    ("whole-prompt", "a prompt is found to its last token", K + "prefix_cache.cc", "(std::ssize(tokens) - 1) / kBlockTokens",
     "std::ssize(tokens) / kBlockTokens", KV),
    ("page-hash", "pages are compared by their hash only", K + "prefix_cache.cc",
     "return std::ranges::equal(nodes_[static_cast<size_t>(found->second)].page, page) ? found->second : kNone;",
     "static_cast<void>(page); return found->second;", KV),
    ("evict-used", "pages that a sequence uses are forgotten as soon as others", K + "prefix_cache.cc",
     "unused_leaf ? kv_.in_use(node.block) : !HasIdleBlock(id)", "!unused_leaf && !HasIdleBlock(id)", KV),

    # Output parser.
    ("space-before-calls", "white space in front of calls stays in the content", C + "output_parser.cc",
     "content_space_.clear();", "", ["chat_test"]),
    ("think-close", "</think> in content begins reasoning", C + "output_parser.cc",
     "state_ = tag == kThinkOpen ? State::kReasoning : State::kContent;",
     "state_ = tag == kThinkOpen || state_ == State::kContent ? State::kReasoning : State::kContent;", ["chat_test"]),
    ("held-tail", "the beginning of a tag at the end of the content is lost", C + "output_parser.cc",
     "ContentText(in_content_.Flush(), &delta);", "", ["chat_test"]),
    ("joined-tags", "dropped tags do not join what stands around them", C + "output_parser.h", "in_content_{true}",
     "in_content_{false}", ["chat_test"]),
    ("invoke-in-content", "a call without its block is text", C + "output_parser.cc",
     "std::span(kInContent).first(has_tools_ ? kInContent.size() : kThink)",
     "std::span(kInContent).first(has_tools_ ? kInContent.size() - 1 : kThink)", ["chat_test"]),
    ("dropped-calls", "tool_choice none reports calls", C + "output_parser.cc", "name.empty() || options_->drop_calls",
     "name.empty()", ["chat_test"]),

    # Scheduler.
    ("preempted-order", "who was put back queues behind all others", E + "scheduler.cc", "waiting_.push_front(std::move(seq));",
     "waiting_.push_back(std::move(seq));", KV[1:]),
    ("short-prompts", "short prompts wait for long ones", E + "scheduler.cc", "int64_t shared = rows / 2;", "int64_t shared = 0;",
     ["scheduler_test"]),
    ("room-counted-twice", "idle blocks of a hit count as room for others", E + "scheduler.cc",
     "kv_->n_idle_cached() - hit.n_idle", "kv_->n_idle_cached()", KV[1:]),
    ("cancel-leaks", "a cancelled request keeps its slot", E + "scheduler.cc", "kv_->Close(it->slot); running_.erase(it);",
     "running_.erase(it);", KV[1:]),
]


def run(command, **options):
    return subprocess.run(command, cwd=COPY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "GTEST_FAIL_FAST": "1"}, **options)


def prepare():
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
    if not COPY.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(COPY)], cwd=ROOT, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    subprocess.run(["git", "checkout", "--force", "--detach", head.stdout.strip()], cwd=COPY, check=True)
    (COPY / "build").mkdir(exist_ok=True)
    data = COPY / "build" / "testdata"
    if not data.exists():
        data.symlink_to(ROOT / "build" / "testdata")
    run(["cmake", "--preset", "release"], check=True)


def golden_failure(level):
    for name, numerics in GOLDEN:
        verify = run([str(BUILD / "deepinfer"), "verify", "--model", f"build/testdata/checkpoints/{name}", "--golden",
                      "build/testdata/golden", "--numerics", numerics, "--isa", level, "--chunk", "7", "--threads", "1"])
        if verify.returncode:
            return f"verify {name} {numerics} {level}"
    return None


def ctest_failure(tests):
    for test in tests:
        if run(["ctest", "--test-dir", str(BUILD), "-R", f"^{test}(_[0-9]+)?$", "--no-tests=error"]).returncode:
            return test
    return None


def build(*targets):
    return run(["cmake", "--build", "--preset", "release", "--target", *targets]).returncode == 0


def first_failure(tests=None):
    """What fails first, 'build' if it does not build, or None. Runs `tests`, or those of the model."""
    if tests:
        return ctest_failure(tests) if build(*tests) else "build"
    if not build("deepinfer", *QUICK_TESTS):
        return "build"
    failure = ctest_failure(QUICK_TESTS) or golden_failure(LEVELS[0]) or golden_failure(LEVELS[1])
    if failure:
        return failure
    return ctest_failure(TESTS) if build(*TESTS) else "build"


def mutate(mutation):
    """-> (outcome, seconds)"""
    _, _, file, old, new, *tests = mutation
    path = COPY / file
    text = path.read_text()
    pattern = r"\s+".join(map(re.escape, old.split()))      # line breaks and indentation may differ
    if len(re.findall(pattern, text)) != 1:
        sys.exit(f"{mutation[0]}: expected the text once in {file}, found it {len(re.findall(pattern, text))} times")
    start = time.time()
    path.write_text(re.sub(pattern, lambda _: new, text))
    try:
        return first_failure(*tests), time.time() - start
    finally:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="ids, comma-separated")
    parser.add_argument("--report", help="write the table to this file")
    args = parser.parse_args()
    only = args.only.split(",") if args.only else None
    prepare()
    mutations = [m for m in MUTATIONS if not only or m[0] in only]
    for tests in {tuple(m[5]) if m[5:] else None for m in mutations}:
        if failure := first_failure(tests):
            sys.exit(f"the suite fails without a mutation: {failure}")
    rows, holes = [], 0
    for mutation in mutations:
        outcome, seconds = mutate(mutation)
        noticed = outcome not in (None, "build")
        holes += not noticed
        result = f"`{outcome}` fails" if noticed else "DOES NOT BUILD" if outcome else "SURVIVED"
        rows.append(f"| `{mutation[0]}` | {mutation[1]} | `{mutation[2]}` | {result} |")
        print(f"{mutation[0]}: {result} ({seconds:.0f} s)", flush=True)
    if args.report:
        (ROOT / args.report).write_text(
            "# Mutations\n\nEach line changes one formula and runs the tests; `tools/mutate.py --report docs/mutations.md` made this table.\n\n"
            "| id | change | file | noticed by |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    print(f"{len(rows)} mutations, {holes} not noticed")
    sys.exit(1 if holes else 0)


if __name__ == "__main__":
    main()
