// The worked numbers of the specification (spec 03 section 6, spec 01 section 2.2, spec 02
// section 4.6) and the Engram fixtures, on every kernel level this CPU runs. The numbers come from
// an emulation in another language.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "base/formats.h"
#include "config/model_config.h"
#include "model/forward.h"
#include "ops/kernel_table.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;
using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

const Work kOne{0, 1};

// Numbers are printed with 7 to 9 digits; exp and divisions of a vector kernel may be off by an ulp
// or two.
constexpr float kRelative = 1e-6f;

class PublishedNumbers : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& k() const { return SelectKernels(DetectCpuFeatures(), GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Levels, PublishedNumbers,
                         testing::ValuesIn(AvailableLevels(DetectCpuFeatures())),
                         [](const auto& level) { return level.param; });

void ExpectNearAll(const Floats& got, const Floats& want, float relative = kRelative) {
  ASSERT_GE(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], std::fabs(want[i]) * relative) << "value " << i;
}

void ExpectEqualAll(const Floats& got, const Floats& want) {
  ASSERT_GE(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]) << "value " << i;
}

Floats Padded(Floats x, size_t n) {
  x.resize(n);
  return x;
}

Bytes F32Bytes(const Floats& x) {
  Bytes bytes(x.size() * 4);
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

Bytes Bf16Bytes(const Floats& x) {
  Bytes bytes;
  for (float v : x) {
    const uint16_t bits = FloatToBf16(v);
    bytes.push_back(static_cast<uint8_t>(bits & 255));
    bytes.push_back(static_cast<uint8_t>(bits >> 8));
  }
  return bytes;
}

const Floats kA1 = {1, -0.30078125f, 0.75f, 3.140625f, -2.5f, 0.00099945068f, 100, -7};

// ---- spec 03 section 6.1 to 6.3: quantisers ----

struct QuantCase {
  const char* name;
  RowFormat format;
  float fp8_max;
  Floats input;
  int scale;
  Bytes codes;  // as stored: packed two to a byte for fp4
  Floats values;
};

std::vector<QuantCase> QuantCases() {
  constexpr RowFormat kQ8 = RowFormat::kFp8Block32, kQ4u = RowFormat::kFp4Block32,
                      kQ4e = RowFormat::kFp4Block16;
  const Floats b1 = {1, -0.30078125f, 0.75f, 3.140625f, -2.5f, 0.10009766f, 5, -7};
  const Floats b2 = {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  const Floats t2 = {400,          0.0123291f, 0.5f,      1.703125f,
                     -0.02001953f, 0.8984375f, 3.296875f, 0.01171875f};
  return {
      {"A1",
       kQ8,
       448,
       kA1,
       125,
       {0x48, 0xba, 0x44, 0x55, 0xd2, 0x02, 0x7c, 0xde},
       {1, -0.3125f, 0.75f, 3.25f, -2.5f, 0.0009765625f, 96, -7}},
      {"A2", kQ8, 448, {}, 105, {0}, {0}},
      {"A3",
       kQ8,
       448,
       {448, 1, -448, 0.5f, 17, -18, 19, 3.5f},
       127,
       {0x7e, 0x38, 0xfe, 0x30, 0x58, 0xd9, 0x5a, 0x46},
       {448, 1, -448, 0.5f, 16, -18, 20, 3.5f}},
      {"A4",
       kQ8,
       448,
       {450, 1, -3, 0.5f, 17, -18, 19, 3.5f},
       128,
       {0x76, 0x30, 0xbc, 0x28, 0x50, 0xd1, 0x52, 0x3e},
       {448, 1, -3, 0.5f, 16, -18, 20, 3.5f}},
      {"A5",
       kQ8,
       448,
       {1.00135803e-5f, -2.00271606e-5f, 2.9951334e-6f},
       105,
       {0x62, 0xea, 0x55},
       {9.5367431640625e-06f, -1.9073486328125e-05f, 3.0994415283203125e-06f}},
      {"A1 with 224",
       kQ8,
       224,
       kA1,
       126,
       {0x40, 0xb2, 0x3c, 0x4d, 0xca, 0x01, 0x74, 0xd6},
       {1, -0.3125f, 0.75f, 3.25f, -2.5f, 0.0009765625f, 96, -7}},
      {"second with 448", kQ8, 448, t2, 127, {0x7c, 0x06, 0x30, 0x3e, 0x8a, 0x36, 0x45, 0x06}, {}},
      {"second with 224", kQ8, 224, t2, 128, {0x74, 0x03, 0x28, 0x36, 0x85, 0x2e, 0x3d, 0x03}, {}},
      {"B1", kQ4u, 0, b1, 128, {0x81, 0x31, 0x0a, 0xe4}, {1, -0.0f, 1, 3, -2, 0, 4, -8}},
      {"B2", kQ4u, 0, b2, 127, {0x07, 0x22, 0x44, 0x66}, {6, 0, 1, 1, 2, 2, 4, 4}},
      {"B3",
       kQ4u,
       0,
       {6.03125f, 0.5f, 1.5f, 2.5f, 3.5f, 5, -0.25f, -1},
       128,
       {0x05, 0x22, 0x44, 0x98},
       {6, 0, 2, 2, 4, 4, -0.0f, -1}},
      {"B4", kQ4u, 0, {}, 1, {0}, {0}},
      {"C1",
       kQ4e,
       0,
       b1,
       0x39,
       {0x92, 0x51, 0x0c, 0xf6},
       {1.125f, -0.5625f, 0.5625f, 3.375f, -2.25f, 0, 4.5f, -6.75f}},
      {"C2", kQ4e, 0, b2, 0x38, {0x07, 0x22, 0x44, 0x66}, {6, 0, 1, 1, 2, 2, 4, 4}},
      {"C3", kQ4e, 0, {}, 0x01, {0}, {0}},
      {"C4", kQ4e, 0, {1e-4f, 1e-4f, -1e-4f}, 0x01, {0x00, 0x08}, {0, 0, -0.0f}},
      {"C5", kQ4e, 0, {3008, -1504, 700, 100}, 0x7e, {0xd7, 0x03}, {2688, -1344, 672, 0}},
  };
}

TEST_P(PublishedNumbers, Quantisers) {
  for (const QuantCase& c : QuantCases()) {
    SCOPED_TRACE(c.name);
    const int32_t n = 1;
    const int64_t slot = 0;
    const Floats x = Padded(c.input, 32);
    Floats y(32);
    Bytes row(static_cast<size_t>(RowBytes(c.format, 32)), 0xee);
    k().store_rows({&n, x.data(), &slot, row.data(), 32, c.format, c.fp8_max}, kOne);
    k().quant_rows({&n, x.data(), y.data(), 32, c.format, c.fp8_max}, kOne);
    const size_t first_scale = c.format == RowFormat::kFp8Block32 ? 32 : 16;
    EXPECT_EQ(row[first_scale], c.scale);
    for (size_t i = 0; i < c.codes.size(); ++i) EXPECT_EQ(row[i], c.codes[i]) << "byte " << i;
    for (size_t i = 0; i < c.values.size(); ++i) {
      EXPECT_EQ(FloatToBf16(y[i]), FloatToBf16(c.values[i])) << "value " << i << " " << y[i];
    }
  }
}

// ---- section 6.4 ----

TEST_P(PublishedNumbers, Fp8Linear) {
  const int32_t n = 1;
  Bytes codes = {0x38, 0xb0, 0x42, 0x2f, 0x3c, 0x7e, 0x11, 0x81};
  codes.resize(32);
  const uint8_t scale = 0x7b;
  Floats x = Padded(kA1, 32), y(1), scratch(64);
  LinearArgs a{};
  a.n_rows = &n;
  a.x = x.data();
  a.x_stride = 32;
  a.w = {codes.data(), &scale, DType::kFp8Tile32, 1, 32, 32, 1, 0};
  a.y = y.data();
  a.y_stride = 1;
  a.round = true;
  a.scratch = scratch.data();
  a.scratch_stride = 64;
  k().linear(a, kOne);
  EXPECT_NEAR(y[0], 0.295288f, 0.001f);  // unquantised input, rounded to bf16
  k().quant_rows({&n, x.data(), x.data(), 32, RowFormat::kFp8Block32, 448}, kOne);
  k().linear(a, kOne);
  EXPECT_EQ(y[0], 0.2890625f);
  a.round = false;
  k().linear(a, kOne);
  EXPECT_NEAR(y[0], 0.289428711f, 1e-7f);
}

// The score itself is not visible from outside: key 1 has the published dots; key 0 is given a
// score by a second dimension, equal (then the lower index wins) or one bf16 step lower (then key 1
// wins).
TEST_P(PublishedNumbers, IndexScoreRounding) {
  const float published = 0.1142578125f;
  const float w0 = RoundBf16(0.828125f / 64);
  const auto score_of = [&](float dot) { return RoundBf16(RoundBf16(dot) * w0); };
  const auto dot_for = [&](float score) {
    float dot = RoundBf16(score / w0 - 1);
    while (score_of(dot) < score) dot = Bf16ToFloat(static_cast<uint16_t>(FloatToBf16(dot) + 1));
    return dot;
  };
  const float lower = Bf16ToFloat(static_cast<uint16_t>(FloatToBf16(published) - 1));
  const float higher = Bf16ToFloat(static_cast<uint16_t>(FloatToBf16(published) + 1));
  for (const auto& [score, winner] : {std::pair{published, 0}, {lower, 1}, {higher, 0}}) {
    const float dot = dot_for(score);
    if (score_of(dot) != score) continue;  // no bf16 dot gives exactly this score
    Floats q(4 * 32), keys(2 * 32);
    const float dots[4] = {10.03f, -2, 3.3333f, 7.777f};
    for (size_t h = 0; h < 4; ++h) q[h * 32] = dots[h];
    q[1] = dot;
    keys[1] = 1;
    keys[32] = 1;
    const Floats weights = {0.828125f, 1.203125f, -0.41015625f, 0.05493164f};
    const int32_t n = 1, position = 1, seq = 0, page = 0;
    int32_t selected = -1, n_selected = -1, unused = 0;
    Bytes scratch(static_cast<size_t>(IndexSelectScratchBytes(4, 32, 1, 0)) + 64);
    IndexSelectArgs a{};
    a.n_rows = &n;
    a.q = q.data();
    a.weights = weights.data();
    a.positions = &position;
    a.row_seqs = &seq;
    a.keys = {reinterpret_cast<const uint8_t*>(keys.data()), &page, 1, 64, RowFormat::kF32};
    a.heads = 4, a.dim = 32, a.topk = 1, a.ratio = 1, a.weight_scale = 1.0f / 64;
    a.round = a.round_scores = true;
    a.mode = Candidates::kNone;
    a.block_size = 8;
    a.candidates = &unused, a.n_candidates = &unused;
    a.selected = &selected, a.n_selected = &n_selected;
    a.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    k().index_select(a, kOne);
    EXPECT_EQ(n_selected, 1);
    EXPECT_EQ(selected, winner) << "other key scores " << score;
  }
}

TEST_P(PublishedNumbers, Attention) {
  const int32_t n = 1, position = 2, zero = 0;
  const Floats q = Padded({1, 2}, 32);
  Floats rows(8 * 32), o(32), scratch(static_cast<size_t>(AttentionScratchFloats(32)) + 16);
  rows[0] = 1;
  rows[32 + 1] = 1;
  rows[64] = 0.5f, rows[65] = -0.5f;
  const Bytes sink = F32Bytes({0.3f});
  AttentionArgs a{};
  a.n_rows = &n;
  a.q = q.data(), a.o = o.data();
  a.positions = &position, a.row_seqs = &zero, a.row_slots = &zero;
  a.window_rows = reinterpret_cast<const uint8_t*>(rows.data());
  a.window_format = RowFormat::kF32;
  a.ring = 8, a.window = 3;
  a.sink = sink.data();
  a.heads = 1, a.head_dim = 32, a.scale = 0.5f;
  a.round_p = true;
  a.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / 4;
  k().attention(a, kOne);
  ExpectNearAll(o, {0.31344867f, 0.35840219f});
  a.round = true;
  k().attention(a, kOne);
  ExpectEqualAll(o, {0.3125f, 0.359375f});
}

// ---- section 6.5 ----

TEST_P(PublishedNumbers, RmsNorm) {
  const int32_t n = 1;
  const Floats x = {1, -2, 0.5f, 4};
  const Bytes w = Bf16Bytes({1, 0.5f, 2, 0.25f});
  Floats y(4);
  k().rms_norm({&n, x.data(), w.data(), y.data(), 4, 1e-20f, true}, kOne);
  ExpectEqualAll(y, {0.43359375f, -0.43359375f, 0.43359375f, 0.43359375f});
}

TEST_P(PublishedNumbers, MixesAndSinkhorn) {
  const int32_t n = 1;
  const Floats streams(4 * 8, 1.0f);                            // root mean square 1: m = raw
  const Floats raw = {0.5f, -1, 0.25f, 2,    0, 1, -1,   0.5f,  // pre, post
                      2,    0,  -1,    0.5f, 0, 1, 0.5f, -2,   1, -1, 3, 0, 0.25f, 0, 0, 1.5f};
  Floats base(24);
  base[0] = 1;
  const Bytes base_bytes = F32Bytes(base), scale = F32Bytes({1, 0.5f, 1});
  Floats pre(4), post(4), comb(16);
  MixArgs a{&n,
            streams.data(),
            raw.data(),
            base_bytes.data(),
            scale.data(),
            pre.data(),
            post.data(),
            comb.data(),
            4,
            8,
            20,
            1e-6f,
            1e-20f};
  k().mix(a, kOne);
  ExpectNearAll(pre, {0.81757545f, 0.26894245f, 0.56217754f, 0.88079804f});
  ExpectNearAll(post, {1, 1.2449187f, 0.75508136f, 1.12435305f});
  ExpectNearAll(comb,
                {0.6086447f, 0.1453111f, 0.02216142f, 0.2238819f, 0.1384251f, 0.6637858f, 0.166904f,
                 0.03088418f, 0.1379514f, 0.03293683f, 0.7454478f, 0.08366293f, 0.1149779f,
                 0.1579653f, 0.06548583f, 0.66157f},
                2e-6f);
  a.iterations = 1;
  k().mix(a, kOne);
  ExpectNearAll(comb,
                {0.6071063f, 0.1309085f, 0.02730685f, 0.1976794f, 0.1553817f, 0.6729471f,
                 0.2314327f, 0.03068756f, 0.09614702f, 0.02073289f, 0.6418005f, 0.05161599f,
                 0.1413642f, 0.1754102f, 0.09945925f, 0.7200158f},
                2e-6f);
}

TEST_P(PublishedNumbers, StreamUpdate) {
  const int32_t n = 1;
  const Floats out = {0.5f}, post = {1, 0.5f, 1.5f, 0.25f};
  const Floats comb = {0.6086447f, 0.1453111f,  0.02216142f, 0.2238819f,  0.1384251f, 0.6637858f,
                       0.166904f,  0.03088418f, 0.1379514f,  0.03293683f, 0.7454478f, 0.08366293f,
                       0.1149779f, 0.1579653f,  0.06548583f, 0.66157f};
  Floats streams = {1, 2, 3, 4};
  k().expand({&n, out.data(), post.data(), comb.data(), streams.data(), 4, 1, false}, kOne);
  ExpectNearAll(streams, {2.25926065f, 2.45355463f, 3.60425615f, 3.30791903f});
}

// ---- section 6.6 ----

TEST_P(PublishedNumbers, Pooling) {
  const int32_t n = 1, row = 0, position = 1, slot = 0;
  const Floats kv = {1, -2, 3, 0.5f}, score = {0, 2, 1, -1};
  Floats y(2);
  PoolArgs a{&n, &row, &position, &slot, kv.data(), score.data(), y.data(), 2, 2, false};
  k().pool(a, kOne);
  ExpectNearAll(y, {2.4621172f, -1.8814353f});
  a.round = true;
  k().pool(a, kOne);
  ExpectEqualAll(y, {2.46875f, -1.8828125f});
}

TEST_P(PublishedNumbers, EngramGate) {
  const int32_t n = 1;
  Floats h = {1, 2, -1, 0.5f}, gate(1);
  const Floats kv = {0.5f, 1, 1, -2, 0.25f, -0.5f, 1, 2};
  const Bytes q = Bf16Bytes({1, 1.5f, 0.5f, 1}), one = Bf16Bytes({1, 1, 1, 1});
  const uint8_t dead = 0;
  k().engram_gate(
      {&n, h.data(), kv.data(), q.data(), one.data(), &dead, gate.data(), 1, 4, 1e-20f, false},
      kOne);
  ExpectNearAll(gate, {0.689974487f});
  ExpectNearAll(h, {1.172493577f, 1.655012727f, -0.310025513f, 1.879948974f});
}

TEST_P(PublishedNumbers, EngramGateFixtures) {
  std::ifstream file(DI_SOURCE_DIR "/tests/data/fixtures/engram/gate.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json j = Json::parse(line);
    SCOPED_TRACE(j["name"].get<std::string>());
    const int32_t rows = j["T"], streams = j["streams"], dim = j["dim"];
    const Floats key = j["key"], value = j["value"];
    Floats kv;
    for (int32_t r = 0; r < rows; ++r) {
      kv.insert(kv.end(), key.begin() + r * streams * dim, key.begin() + (r + 1) * streams * dim);
      kv.insert(kv.end(), value.begin() + r * dim, value.begin() + (r + 1) * dim);
    }
    const Bytes q = Bf16Bytes(j["q_weight"].get<Floats>()),
                kw = Bf16Bytes(j["k_weight"].get<Floats>());
    Bytes dead(static_cast<size_t>(rows));
    for (size_t r = 0; !j["mask"].is_null() && r < dead.size(); ++r)
      dead[r] = !j["mask"][r].get<bool>();
    for (bool round : {false, true}) {
      Floats h = j["h"], gate(static_cast<size_t>(rows * streams));
      k().engram_gate({&rows, h.data(), kv.data(), q.data(), kw.data(), dead.data(), gate.data(),
                       streams, dim, j["eps"].get<float>(), round},
                      kOne);
      const Floats want_gate = j["gate"], want = round ? j["out_bf16"] : j["out_f32"];
      for (size_t i = 0; i < gate.size(); ++i) EXPECT_NEAR(gate[i], want_gate[i], 1e-5f);
      // fp32: 1e-5; bf16: one unit in the last place (spec 04 section 7).
      for (size_t i = 0; i < h.size(); ++i)
        EXPECT_NEAR(h[i], want[i], round ? std::fabs(want[i]) / 128 : 1e-5f);
    }
  }
  EXPECT_EQ(cases, 8);
}

Bytes FromHex(const std::string& hex) {
  Bytes bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST_P(PublishedNumbers, EngramRows) {
  std::ifstream file(DI_SOURCE_DIR "/tests/data/fixtures/engram/row_dequant.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json j = Json::parse(line);
    const Bytes data = FromHex(j["weight_hex"]), scale = FromHex(j["scale_hex"]),
                want = FromHex(j["bf16_le_hex"]);
    const int32_t n = 1;
    const int64_t row = 0;
    Floats y(256);
    Fault fault{};
    EngramGatherArgs a{};
    a.n_rows = &n;
    a.row_ids = &row;
    a.table = {data.data(), scale.data(), DType::kFp8Row32, 1, 256, 256, 8, 0};
    a.y = y.data();
    a.columns = 1, a.dim = 256, a.layer = 1, a.round = true, a.fault = &fault;
    k().engram_gather(a, kOne);
    for (size_t i = 0; i < 256; ++i) {
      // The fixture reads scale byte 0 as zero; spec 02 section 4.2 and the reference model say
      // 2^-127.
      const uint16_t bits = scale[i / 32] == 0
                                ? FloatToBf16(E4m3ToFloat(data[i]) * 0x1p-127f)
                                : static_cast<uint16_t>(want[2 * i] | want[2 * i + 1] << 8);
      if (std::isnan(Bf16ToFloat(bits))) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_EQ(FloatToBf16(y[i]), bits) << "value " << i;
      }
    }
    const bool has_nan = std::find(scale.begin(), scale.end(), 255) != scale.end();
    EXPECT_EQ(fault.kind, has_nan ? Fault::kEngramScaleNan : Fault::kNone);
  }
  EXPECT_EQ(cases, 6);
}

// ---- section 6.7 ----

TEST_P(PublishedNumbers, Router) {
  const int32_t n = 1;
  const Floats logits = {2, -1, 0.5f, 3, 0, -4, 1, 20};
  const Bytes bias = F32Bytes({0, 0.9f, 0, 0, 0, 0, -0.5f, -3});
  std::vector<int32_t> ids(8);
  Floats weights(8);
  k().route({&n, logits.data(), bias.data(), ids.data(), weights.data(), 8, 3, true, 1.5f}, kOne);
  EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.begin() + 3), testing::ElementsAre(3, 7, 1));
  ExpectNearAll(weights, {0.38641003f, 0.98972386f, 0.12386617f});
  // All scores: every expert chosen, without bias and normalisation.
  const Bytes zero = F32Bytes(Floats(8));
  k().route({&n, logits.data(), zero.data(), ids.data(), weights.data(), 8, 8, false, 1}, kOne);
  EXPECT_THAT(ids, testing::ElementsAre(7, 3, 0, 6, 2, 4, 1, 5));
  ExpectNearAll(weights, {4.47213602f, 1.74602044f, 1.45839918f, 1.14597631f, 0.98695338f,
                          0.83255464f, 0.55969787f, 0.13472167f});
}

TEST_P(PublishedNumbers, SwiGlu) {
  // One expert of 32 outputs whose first input carries g and u.
  const Floats g = {12, -12, 1, 0.5f}, u = {11, -11, 2, -0.25f};
  Bytes w1(32 * 32), w3(32 * 32);
  const uint8_t scale = 127;
  for (size_t o = 0; o < g.size(); ++o) {
    w1[o * 32] = FloatToE4m3(g[o]);
    w3[o * 32] = FloatToE4m3(u[o]);
  }
  const ExpertWeights expert{{w1.data(), &scale, DType::kFp8Tile32, 32, 32, 32, 1, 0},
                             {w3.data(), &scale, DType::kFp8Tile32, 32, 32, 32, 1, 0},
                             {}};
  int32_t n_active = 1, active = 0, begin[2] = {0, 1}, row = 0;
  float weight = 0.3f;
  const Floats x = Padded({1}, 32);
  Floats act(32), scratch(2048);
  GateUpArgs a{};
  a.pairs = {&n_active, &active, begin, &row, nullptr};
  a.experts = &expert;
  a.x = x.data(), a.act = act.data();
  a.hidden = a.inter = 32;
  a.limit = 10;
  a.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / 4;
  a.scratch_stride = 64;
  k().gate_up(a, kOne);
  ExpectNearAll(act, {99.9954605f, 0.000737300958f, 1.4621172f, -0.077807419f});
  a.pairs.weights = &weight;
  a.round = true;
  k().gate_up(a, kOne);
  ExpectEqualAll(act, {30, 0.00022125244f, 0.439453125f, -0.0233154297f});
}

// ---- spec 01 section 2.2: rotary embedding ----

TEST(RopeFrequencies, EqualThePublishedTables) {
  const ModelConfig c = ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json");
  const Floats plain = RopeFrequencies(c, false), yarn = RopeFrequencies(c, true);
  EXPECT_EQ(plain[0], 1);
  EXPECT_EQ(plain[1], 0.749894202f);
  EXPECT_EQ(plain[16], 0.00999999978f);
  EXPECT_EQ(plain[31], 0.00013335215f);
  const std::pair<size_t, float> published[] = {{0, 1.0f},
                                                {1, 0.687656045f},
                                                {14, 0.00528685655f},
                                                {15, 0.00363553851f},
                                                {16, 0.00226562493f},
                                                {17, 0.00139680132f},
                                                {20, 0.000296977785f},
                                                {24, 1.95312532e-05f},
                                                {25, 5.37231244e-06f},
                                                {31, 5.6805294e-07f}};
  for (const auto& [i, f] : published) EXPECT_EQ(yarn[i], f) << "pair " << i;
}

TEST_P(PublishedNumbers, RopeThereAndBack) {
  const ModelConfig c = ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json");
  const Floats freq = RopeFrequencies(c, true);
  const int32_t n = 1, position = 3;
  Floats cos(32), sin(32);
  k().rope_table({&n, &position, 0, freq.data(), 32, cos.data(), sin.data()}, kOne);
  Floats x = Padded({1, 2, -0.5f, 0.25f, 3, -1, 0.125f, 0.75f}, 64);
  RopeArgs a{&n, x.data(), 1, 64, {cos.data(), sin.data(), nullptr, 64}, false, true};
  k().rope(a, kOne);
  ExpectEqualAll(x, {-1.2734375f, -1.8359375f, 0.0159912109f, -0.55859375f, 1.4453125f, 2.8125f,
                     -0.55078125f, 0.5234375f});
  a.inverse = true;
  k().rope(a, kOne);
  ExpectEqualAll(x, {1, 2, -0.5f, 0.25f, 3, -1, 0.124511719f, 0.75f});
}

// The product position * frequency is rounded to fp32 before the cosine is taken.
TEST_P(PublishedNumbers, RopeAngleAtLongContext) {
  const ModelConfig c = ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json");
  const Floats freq = RopeFrequencies(c, true);
  const int32_t n = 1, position = 1000003;
  Floats cos(32), sin(32);
  k().rope_table({&n, &position, 0, freq.data(), 32, cos.data(), sin.data()}, kOne);
  EXPECT_NEAR(cos[1], 0.369578f, 1e-6f);
}

// ---- spec 02 section 4.6: bytes of the release ----

TEST_P(PublishedNumbers, WeightBytes) {
  const Bytes fp8 = {0xd8, 0x71, 0xf2, 0x79, 0x70, 0x69, 0xf0, 0xe5};
  const Bytes fp4 = {0xa0, 0xa8, 0xec, 0x4a, 0xad, 0xaf, 0x42, 0xaa};
  const Floats fp8_values = {-0.00390625f, 0.03515625f,  -0.0390625f, 0.0703125f,
                             0.03125f,     0.017578125f, -0.03125f,   -0.0126953125f};
  const Floats fp4_values = {0,           -0.0078125f, -0.0f,       -0.0078125f,
                             -0.015625f,  -0.03125f,   -0.0078125f, 0.015625f,
                             -0.0234375f, -0.0078125f, -0.046875f,  -0.0078125f,
                             0.0078125f,  0.015625f,   -0.0078125f, -0.0078125f};
  const auto check = [&](DType dtype, Bytes data, uint8_t scale, const Floats& values) {
    data.resize(dtype == DType::kFp8Tile32 ? 32 : 16);
    Floats identity(32 * 32), y(32), scratch(64);
    for (size_t i = 0; i < 32; ++i) identity[i * 33] = 1;
    const int32_t n = 32;
    LinearArgs a{};
    a.n_rows = &n;
    a.x = identity.data();
    a.x_stride = 32;
    a.w = {data.data(), &scale, dtype, 1, 32, static_cast<int64_t>(data.size()), 1, 0};
    a.y = y.data();
    a.y_stride = 1;
    a.scratch = scratch.data();
    a.scratch_stride = 64;
    k().linear(a, kOne);
    ExpectEqualAll(y, values);
  };
  check(DType::kFp8Tile32, fp8, 0x73, fp8_values);
  check(DType::kFp4Row32, fp4, 0x78, fp4_values);
}

}  // namespace
}  // namespace deepinfer
