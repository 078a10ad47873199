// Rollback is a length: after a rejection the state of a sequence is, byte for byte, that of a
// fresh prefill of the accepted tokens (B15). The state is what a later step may read: rows of the
// window rings, of the draft stages too, compressed rows and index keys, and the open group. The
// Engram history is the token list itself.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "engine_runs.h"
#include "kv/step_inputs.h"

namespace deepinfer {
namespace {

constexpr int64_t kTokens = 140;  // over two page borders; the smallest rings wrap many times

// Bytes of the rows of a sequence, in a fixed order.
class StateReader {
 public:
  explicit StateReader(const KvPool& kv)
      : kv_(kv), shape_(kv.shape()), block_(1, 1, kv.max_blocks_per_seq(), 0) {}

  std::string Read(SeqSlot slot, const Tokens& text) {
    state_.clear();
    const int64_t n = kv_.length(slot);
    for (int64_t layer = 0; layer < shape_.n_layers; ++layer) {
      for (int64_t p = std::max<int64_t>(0, n - shape_.window); p < n; ++p) {
        const int64_t row = slot * shape_.ring() + p % shape_.ring();
        Append(kv_.window_rows(layer), row, shape_.window_row_bytes);
      }
    }
    // The block table is what the next step is told.
    const SeqRows next{slot, std::span(text).first(static_cast<size_t>(n) + 1), n, 0};
    kv_.FillInputs({&next, 1}, block_.inputs());
    for (const KvShape::Owner& owner : shape_.owners) AppendGroups(owner, slot, n);
    return state_;
  }

 private:
  void AppendGroups(const KvShape::Owner& owner, SeqSlot slot, int64_t n) {
    const int64_t per_page = kBlockTokens / owner.ratio;
    for (int64_t group = 0; group < n / owner.ratio; ++group) {
      const int64_t page = block_.inputs()->block_table[group / per_page];
      const int64_t row = page * per_page + group % per_page;
      Append(kv_.compressed_rows(owner.layer), row, shape_.compressed_row_bytes);
      Append(kv_.index_rows(owner.layer), row, shape_.index_row_bytes);
    }
    for (int64_t p = n / owner.ratio * owner.ratio; p < n; ++p) {
      const int64_t row = slot * shape_.raw_ring() + p % shape_.raw_ring();
      Append(kv_.raw_kv(owner.layer), row, shape_.raw_cols * 4);
      Append(kv_.raw_score(owner.layer), row, shape_.raw_cols * 4);
    }
  }
  void Append(const void* base, int64_t row, int64_t row_bytes) {
    state_.append(static_cast<const char*>(base) + row * row_bytes, static_cast<size_t>(row_bytes));
  }

  const KvPool& kv_;
  const KvShape& shape_;
  StepBlock block_;
  std::string state_;
};

struct Setting {
  const char* name;
  const char* checkpoint;
  int64_t max_num_batched_tokens;  // 6: the smallest rings that a verification fits
};

class Rollback : public testing::TestWithParam<Setting> {
 protected:
  Rollback() : random_(21), executor_(Load(Options())), reader_(executor_.kv()) {
    for (int64_t i = 0; i < kTokens + 8; ++i) text_.push_back(AnyToken());
    // n-grams that come again: Engram rows that come again.
    std::copy_n(text_.begin() + 20, 30, text_.begin() + 100);
  }
  static EngineOptions Options() {
    EngineOptions o = DraftOptions(TestCheckpoint(GetParam().checkpoint));
    o.max_num_batched_tokens = GetParam().max_num_batched_tokens;
    o.max_num_seqs = 2;
    return o;
  }
  TokenId AnyToken() {
    return static_cast<TokenId>(random_() % static_cast<uint32_t>(executor_.config().vocab_size));
  }

  // A slot with the first n tokens computed, `chunk` in a step.
  SeqSlot Prefill(int64_t n, int64_t chunk) {
    const SeqSlot slot = executor_.kv().Open();
    EXPECT_TRUE(executor_.kv().Reserve(slot, std::ssize(text_)));
    for (int64_t first = 0; first < n; first += chunk)
      Compute(slot, text_, std::min(n, first + chunk), 0);
    return slot;
  }
  void Compute(SeqSlot slot, const Tokens& tokens, int64_t end, int64_t n_logits) {
    const int64_t first = executor_.kv().length(slot);
    const SeqRows rows{slot, std::span(tokens).first(static_cast<size_t>(end)), first, n_logits};
    executor_.Step({&rows, 1});
    executor_.kv().SetLength(slot, end);
  }
  // Drafts, verifies `depth` drafts of which `accepted` are right, and takes the others back.
  void Verify(SeqSlot slot, int64_t depth, int64_t accepted) {
    const int64_t length = executor_.kv().length(slot);
    const DraftSeq draft{slot, text_[static_cast<size_t>(length)], 0, 0, 0, Stream::kDraft};
    executor_.Draft({&draft, 1});
    Tokens rows(text_.begin(), text_.begin() + length + 1 + accepted);
    while (std::ssize(rows) < length + 1 + depth) rows.push_back(AnyToken());
    Compute(slot, rows, length + 1 + depth, 1 + depth);
    executor_.kv().SetLength(slot, length + 1 + accepted);
  }
  // Bits of the logits of the next three tokens, and of what is drafted behind them.
  std::vector<uint32_t> Next(SeqSlot slot) {
    std::vector<uint32_t> bits;
    const auto keep = [&](std::span<const float> values) {
      for (float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
    };
    executor_.PoisonTemporaries();
    for (int i = 0; i < 3; ++i) {
      const int64_t length = executor_.kv().length(slot);
      const DraftSeq draft{slot, text_[static_cast<size_t>(length)], 0, 0, 0, Stream::kDraft};
      keep(executor_.Draft({&draft, 1}).logits);
      const SeqRows rows{slot, std::span(text_).first(static_cast<size_t>(length) + 1), length, 1};
      keep(executor_.Step({&rows, 1}));
      executor_.kv().SetLength(slot, length + 1);
    }
    return bits;
  }
  // The state of a fresh prefill, in chunks as large as they get.
  const std::string& FreshState(int64_t n) {
    std::string& state = fresh_[n];
    if (state.empty()) {
      const SeqSlot slot = Prefill(n, GetParam().max_num_batched_tokens);
      state = reader_.Read(slot, text_);
      executor_.kv().Close(slot);
    }
    return state;
  }

  std::map<int64_t, std::string> fresh_;
  std::mt19937 random_;
  Executor executor_;
  StateReader reader_;
  Tokens text_;
};

// Every length (window wrap, open and closed groups, page borders, behind every chunk border),
// every depth, every number of accepted drafts.
TEST_P(Rollback, AnyRejectionLeavesTheStateOfAFreshPrefill) {
#ifdef DI_SANITIZED
  const auto next = [](int64_t length) { return length + 11; };
#else
  const auto next = [](int64_t n) { return n + (n < 24 || (n > 55 && n < 72) || n > 120 ? 1 : 5); };
#endif
  const int64_t block = executor_.draft_tokens();
  ASSERT_GT(block, 0);
  for (int64_t length = 1; length + 1 + block <= kTokens; length = next(length)) {
    const SeqSlot slot = Prefill(length, 5);
    for (int64_t depth : {block, length % block}) {  // over the lengths, all depths
      for (int64_t accepted = 0; accepted <= depth; ++accepted) {
        Verify(slot, depth, accepted);
        ASSERT_TRUE(reader_.Read(slot, text_) == FreshState(length + 1 + accepted))
            << "length " << length << ", depth " << depth << ", accepted " << accepted;
        executor_.kv().SetLength(slot, length);
      }
    }
    ASSERT_TRUE(reader_.Read(slot, text_) == FreshState(length)) << length;
    executor_.kv().Close(slot);
  }
}

// One rejection after the other, as an answer is written; then what the next rows say.
TEST_P(Rollback, AnswersOfManyRejectionsLeaveTheStateOfAFreshPrefill) {
#ifdef DI_SANITIZED
  constexpr int kWalks = 1;  // ten times slower
#else
  constexpr int kWalks = 4;
#endif
  const int64_t block = executor_.draft_tokens();
  for (int walk = 0; walk < kWalks; ++walk) {
    const SeqSlot slot = Prefill(1 + walk, 3);
    for (;;) {
      const int64_t length = executor_.kv().length(slot);
      if (length + 1 + block > kTokens) break;
      const auto depth = static_cast<int64_t>(random_() % static_cast<uint32_t>(block + 1));
      Verify(slot, depth, static_cast<int64_t>(random_() % static_cast<uint32_t>(depth + 1)));
      const int64_t now = executor_.kv().length(slot);
      ASSERT_TRUE(reader_.Read(slot, text_) == FreshState(now))
          << "walk " << walk << ", length " << now;
    }
    const SeqSlot other = Prefill(executor_.kv().length(slot), 6);
    EXPECT_EQ(Next(slot), Next(other)) << "walk " << walk;
    executor_.kv().Close(slot);
    executor_.kv().Close(other);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Rollback,
                         testing::Values(Setting{"tiny", "tiny", 48},
                                         Setting{"tiny_small_rings", "tiny", 6},
                                         Setting{"tiny_odd", "tiny-odd", 7}),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace deepinfer
