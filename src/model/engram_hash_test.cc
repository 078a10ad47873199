// Against tests/data/fixtures/engram (rows agreed on by four implementations), numpy's generator,
// and the row counts that the released, demo and test checkpoints state.
#include "model/engram_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace deepinfer {
namespace {

using nlohmann::json;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr TokenId kImage = 129264;
const EngramHashParams kReleased{
    .layer_ids = {1, 14},
    .num_embeddings = {384006168, 384016682},
    .classes = 99092,
    .vocab_size = 16000000,
    .max_ngram = 4,
    .heads = 8,
    .pad_token = 2,
    .dead_token = kImage,
};

struct Fixture {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<int64_t> chunks;  // sizes
  json line;
};

std::ifstream Open(const std::string& name) {
  return std::ifstream(DI_SOURCE_DIR "/tests/data/fixtures/engram/" + name);
}

std::vector<Fixture> ReadFixtures() {
  std::ifstream file = Open("hash_rows.jsonl");
  std::vector<Fixture> fixtures;
  for (std::string text; std::getline(file, text);) {
    json line = json::parse(text);
    fixtures.push_back(
        {line["name"], line["ids"], line.value("chunks", std::vector<int64_t>{}), std::move(line)});
  }
  return fixtures;
}

// The released class map as far as the fixtures show it; other ids are in class 0.
std::vector<int32_t> FixtureClasses() {
  std::vector<int32_t> classes(129280, 0);
  classes[2] = 2;
  for (const Fixture& f : ReadFixtures()) {
    for (size_t i = 0; i < f.ids.size(); ++i) {
      const int32_t token_class = f.line["compressed"][i];
      if (token_class >= 0) classes[f.ids[i]] = token_class;
    }
  }
  return classes;
}

EngramHash ReleasedHash() { return {kReleased, FixtureClasses()}; }

struct Result {
  std::vector<int64_t> rows;
  std::vector<uint8_t> dead;
};

void Append(const EngramHash& hash, std::span<const TokenId> ids, int64_t first, Result* result) {
  const size_t n = ids.size() - first, per_position = hash.layers() * hash.columns();
  std::vector<int64_t> rows(n * per_position);
  std::vector<uint8_t> dead(n);
  hash.Rows(ids, first, rows, dead);
  result->rows.insert(result->rows.end(), rows.begin(), rows.end());
  result->dead.insert(result->dead.end(), dead.begin(), dead.end());
}

// SHA-256 (FIPS 180-4) of the rows as little-endian int32, in hex.
std::string Sha256OfRows(const std::vector<int64_t>& rows) {
  std::string bytes;
  for (int64_t row : rows) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(row >> shift));
  }
  const uint64_t bits = bytes.size() * 8;
  bytes.push_back('\x80');
  while (bytes.size() % 64 != 56) bytes.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(bits >> shift));

  // Round constants: fractional bits of the cube roots of the first 64 primes; start: of the square
  // roots of the first 8.
  std::array<uint32_t, 64> k{};
  std::array<uint32_t, 8> h{};
  for (int n = 0, p = 2; n < 64; ++p) {
    bool prime = true;
    for (int d = 2; d * d <= p; ++d) prime = prime && p % d != 0;
    if (!prime) continue;
    const auto fraction = [](long double root) {
      return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
    };
    if (n < 8) h[n] = fraction(std::sqrt(static_cast<long double>(p)));
    k[n++] = fraction(std::cbrt(static_cast<long double>(p)));
  }
  for (size_t block = 0; block < bytes.size(); block += 64) {
    std::array<uint32_t, 64> w{};
    for (int i = 0; i < 64; ++i)
      w[i / 4] |= uint32_t{static_cast<uint8_t>(bytes[block + i])} << (24 - 8 * (i % 4));
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, last] = h;
    for (int i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = last + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      last = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> round{a, b, c, d, e, f, g, last};
    for (int i = 0; i < 8; ++i) h[i] += round[i];
  }
  std::string hex;
  for (uint32_t word : h) {
    for (int shift = 28; shift >= 0; shift -= 4)
      hex.push_back("0123456789abcdef"[(word >> shift) & 15]);
  }
  return hex;
}

TEST(EngramHash, ReleasedConstantsAreThePublishedOnes) {
  const EngramHash hash = ReleasedHash();
  const json summary = json::parse(Open("token_map_summary.json"));
  ASSERT_EQ(hash.layers(), 2);
  ASSERT_EQ(hash.columns(), 24);
  EXPECT_EQ(hash.lookback(), 3);
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_THAT(hash.multipliers(layer),
                ElementsAreArray(summary["multipliers"][layer].get<std::vector<int64_t>>()));
    EXPECT_THAT(hash.primes(layer),
                ElementsAreArray(summary["primes"][layer].get<std::vector<int64_t>>()));
    EXPECT_THAT(hash.offsets(layer),
                ElementsAreArray(summary["offsets"][layer].get<std::vector<int64_t>>()));
    EXPECT_EQ(hash.offsets(layer)[23] + hash.primes(layer)[23], summary["rows"][layer]);
  }
}

TEST(EngramHash, RowsEqualTheFixturesWholeInChunksAndOneByOne) {
  const EngramHash hash = ReleasedHash();
  const auto fixtures = ReadFixtures();
  ASSERT_EQ(fixtures.size(), 58u);
  int n_chunked = 0;
  for (const Fixture& f : fixtures) {
    SCOPED_TRACE(f.name);
    const std::span<const TokenId> ids = f.ids;
    Result whole;
    Append(hash, ids, 0, &whole);
    EXPECT_EQ(Sha256OfRows(whole.rows), f.line["rows_sha256"].get<std::string>());
    if (f.line.contains("rows")) {
      std::vector<int64_t> expected;
      for (const json& position : f.line["rows"]) {
        for (const json& layer : position)
          expected.insert(expected.end(), layer.begin(), layer.end());
      }
      EXPECT_EQ(whole.rows, expected);
    }
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(whole.dead[i], f.line["compressed"][i] == -1) << i;

    // With only the look-back in front, as at decode.
    Result single;
    for (int64_t i = 0; i < std::ssize(ids); ++i) {
      const int64_t from = std::max<int64_t>(0, i - hash.lookback());
      Append(hash, ids.subspan(from, i + 1 - from), i - from, &single);
    }
    EXPECT_EQ(single.rows, whole.rows);
    EXPECT_EQ(single.dead, whole.dead);

    if (f.chunks.empty()) continue;
    ++n_chunked;
    Result chunked;
    int64_t at = 0;
    for (int64_t size : f.chunks) {
      const int64_t from = std::max<int64_t>(0, at - hash.lookback());
      Append(hash, ids.subspan(from, at + size - from), at - from, &chunked);
      at += size;
    }
    ASSERT_EQ(at, std::ssize(ids));
    EXPECT_EQ(chunked.rows, whole.rows);
    EXPECT_EQ(chunked.dead, whole.dead);
  }
  EXPECT_EQ(n_chunked, 5);
}

// Classes 40, 30, 20, 10 at t, t-1, t-2, t-3 and class 10 alone (spec 01 section 8.2); the first 67
// ids are their own class.
TEST(EngramHash, RowsEqualTheTableOfTheModelDescription) {
  std::vector<int32_t> classes(100);
  for (int i = 0; i < 100; ++i) classes[i] = i;
  const EngramHash hash(kReleased, classes);
  Result result;
  Append(hash, std::vector<TokenId>{10, 20, 30, 40}, 0, &result);
  const std::vector<int64_t> layer1_last{
      1326936,   22120929,  40011923,  55142539,  77849479,  85421395,  105208034, 120570043,
      142088989, 151706440, 164511320, 186980067, 199834903, 222266846, 231919637, 244765195,
      270969918, 287524568, 292261800, 310632033, 322879311, 341250912, 361620893, 378628807};
  const std::vector<int64_t> layer14_last{
      5403109,   26519290,  42262171,  52759697,  74009651,  83431750,  98759453,  114437397,
      136663117, 159466275, 161102974, 190712189, 206344738, 219595678, 225703309, 243746465,
      258079010, 283475728, 290789713, 309926711, 321434350, 340293184, 357342800, 378588994};
  const std::vector<int64_t> layer1_first{
      9400104,   24924096,  42335591,  53627767,  70568887,  92216816,  111040993, 114349277,
      128026094, 156221192, 173153866, 190951133, 196554635, 215358067, 227564690, 254838319,
      261350200, 277988921, 301030767, 312551990, 330899850, 342421405, 356727647, 382122658};
  const auto part = [&](int position, int layer) {
    return std::span(result.rows).subspan((position * 2 + layer) * 24, 24);
  };
  EXPECT_THAT(part(3, 0), ElementsAreArray(layer1_last));
  EXPECT_THAT(part(3, 1), ElementsAreArray(layer14_last));
  EXPECT_THAT(part(0, 0), ElementsAreArray(layer1_first));
}

// Written by numpy 2.4: default_rng(10007 * layer).integers(0, (2**63 - 1) // classes // 2, size=n,
// dtype=int64) * 2 + 1.
TEST(EngramHash, MultipliersFollowNumpysGenerator) {
  struct Expected {
    int layer, classes;
    std::vector<int64_t> multipliers;
  };
  const Expected cases[] = {
      {0, 393, {14948943041701113, 6331662167034671, 961613371309155}},
      {5, 393, {9178403628322673, 7804037081011961, 5135279308502543}},
      {1, 454, {16726052117653377, 1056372250745867, 7848713324821505, 16148795690367897}},
      {4, 454, {17954470452334099, 1099570236012885, 16075920935088279, 4137170220750369}},
      {1, 3389, {2240669124052709, 141514606621015, 1051435777358797, 2163338224676017}},
      {39, 99092, {78783423298101, 66755978342133, 54001799726845, 83841824865251, 22764415579401}},
      {500000, 7, {104054517916753, 1068243199633045183, 635597240841385837, 1020132375367273221}},
  };
  const int64_t primes_from_11[] = {11, 11 + 13, 11 + 13 + 17, 11 + 13 + 17 + 19};
  for (const Expected& c : cases) {
    const int n = static_cast<int>(c.multipliers.size());
    const EngramHashParams params{
        .layer_ids = {c.layer},
        .num_embeddings = {primes_from_11[n - 2]},
        .classes = c.classes,
        .vocab_size = 11,
        .max_ngram = n,
        .heads = 1,
        .pad_token = 0,
    };
    EXPECT_THAT(EngramHash(params, {0}).multipliers(0), ElementsAreArray(c.multipliers))
        << "layer " << c.layer;
  }
}

// engram_num_embeddings as the config.json of the demo model and of the three test checkpoints
// state them.
TEST(EngramHash, RowCountsEqualThoseOfOtherCheckpoints) {
  const EngramHashParams demo{{1, 4}, {12126, 12436}, 3389, 2000, 4, 2, 0};
  const EngramHashParams tiny{{1, 4}, {2914, 3746}, 454, 211, 4, 4, 0};
  const EngramHashParams tiny_odd{{0, 5}, {630, 834}, 393, 97, 3, 3, 0};
  const EngramHashParams tiny_window{{1}, {2914}, 454, 211, 4, 4, 0};
  for (const EngramHashParams& params : {demo, tiny, tiny_odd, tiny_window}) {
    EXPECT_NO_THROW(EngramHash(params, {0}));
  }
}

std::string MessageOf(const EngramHashParams& params, std::vector<int32_t> classes) {
  try {
    EngramHash(params, std::move(classes));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(EngramHash, RefusesWrongRowCountsNamingBoth) {
  EngramHashParams params = kReleased;
  params.num_embeddings[1] = 384016683;
  const std::string message = MessageOf(params, {0, 1, 2});
  EXPECT_THAT(message, HasSubstr("layer 14"));
  EXPECT_THAT(message, HasSubstr("384016682"));
  EXPECT_THAT(message, HasSubstr("384016683"));
}

TEST(EngramHash, RefusesNumbersOutOfRange) {
  const auto with = [](auto change) {
    EngramHashParams params = kReleased;
    change(params);
    return MessageOf(params, {0, 1, 2});
  };
  EXPECT_EQ(with([](auto&) {}), "no error");
  EXPECT_THAT(with([](auto& p) { p.classes = 0; }), HasSubstr("engram_compressed_vocab_size"));
  EXPECT_THAT(with([](auto& p) { p.classes = 2; }), HasSubstr("engram token class"));
  EXPECT_THAT(with([](auto& p) { p.vocab_size = 0; }), HasSubstr("engram_vocab_size"));
  EXPECT_THAT(with([](auto& p) { p.max_ngram = 1; }), HasSubstr("engram_max_ngram_size"));
  EXPECT_THAT(with([](auto& p) { p.max_ngram = 9; }), HasSubstr("engram_max_ngram_size"));
  EXPECT_THAT(with([](auto& p) { p.heads = 0; }), HasSubstr("engram_n_heads"));
  EXPECT_THAT(with([](auto& p) { p.layer_ids = {1}; }), HasSubstr("engram_num_embeddings"));
  EXPECT_THAT(with([](auto& p) { p.layer_ids = {-1, 14}; }), HasSubstr("engram_layer_ids"));
  EXPECT_THAT(with([](auto& p) { p.pad_token = 3; }),
              HasSubstr("token id: expected 0 to 2, found 3"));
}

// Padding id -1 must not wrap around in the class map, and no id may read past its end.
TEST(EngramHash, RefusesIdsOutsideTheClassMap) {
  const EngramHash hash = ReleasedHash();
  for (TokenId bad :
       {-1, 129280, std::numeric_limits<TokenId>::min(), std::numeric_limits<TokenId>::max()}) {
    Result result;
    EXPECT_THROW(Append(hash, std::vector<TokenId>{5, bad}, 1, &result), Error) << bad;
    EXPECT_THROW(Append(hash, std::vector<TokenId>{bad, 5}, 1, &result), Error)
        << bad << " in the look-back";
  }
}

}  // namespace
}  // namespace deepinfer
