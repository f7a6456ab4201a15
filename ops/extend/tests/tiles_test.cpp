// The numbers of the shared-memory, register and five-bound formulas, without a GPU.
#include <gtest/gtest.h>

#include "ops/extend/tiles.h"

namespace hyla::extend {
namespace {

constexpr int64_t kSm90 = 232448, kSm80 = 166912, kSm120 = 101376;

TileConfig tile(Mma mma, int Lq, int Lv, int m, int n, int stages) { return {.mma = mma, .Lq = Lq, .Lv = Lv, .m = m, .n = n, .stages = stages}; }
TileConfig wgmma(int Lq, int Lv, int m, int n, int stages) { return tile(Mma::kWgmma, Lq, Lv, m, n, stages); }

TEST(ExtendTiles, ChipLimitsAreTheOnesOfTheTable) {
  EXPECT_EQ(find_device("h200")->smem_per_block, kSm90);
  EXPECT_EQ(find_device("a100")->smem_per_block, kSm80);
  EXPECT_EQ(find_device("rtx-pro-6000")->smem_per_block, kSm120);
  EXPECT_EQ(find_device("rtx4090")->smem_per_block, kSm120);
}

// A compiler that pipelines loads over three stages holds two of them beside Q and P: 32 x 64 tiles, the usual choice at head_dim 512 on Hopper.
TEST(ExtendTiles, HeadDim512AtThreePipelineStagesDoesNotFitHopper) {
  TileConfig t = wgmma(512, 512, 32, 64, 3 - 1);
  t.p_buffers = 1;
  EXPECT_EQ(smem_use(t).tiles(), 299008);
  EXPECT_GT(smem_use(t).tiles(), kSm90);
  const Status status = check_tile(t, find_device("h200").value());
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_EQ(status.argument(), "smem_per_block");
  EXPECT_NE(status.message().find("232448"), std::string::npos) << status.message();
}

TEST(ExtendTiles, ThreeStagesOf128KeysAtHeadDim128DoNotFit99KiB) {
  const SmemUse use = smem_use(wgmma(128, 128, 128, 128, 3));
  EXPECT_EQ(use.stages * (use.k + use.v), 196608);
  EXPECT_GT(use.stages * (use.k + use.v), kSm120);
  EXPECT_FALSE(check_tile(wgmma(128, 128, 128, 128, 3), find_device("rtx-pro-6000").value()).ok());
  EXPECT_LE(use.total(), kSm90);
}

TEST(ExtendTiles, Latent576WithSeparateKAndVNeeds278528) {
  const SmemUse apart = smem_use(wgmma(576, 512, 64, 64, 2));
  EXPECT_EQ(apart.stages * (apart.k + apart.v), 278528);
  EXPECT_GT(apart.total(), kSm90);
  TileConfig view = wgmma(576, 512, 64, 64, 2);
  view.v_aliases_k = true, view.p_buffers = 1, view.column_splits = 2;
  EXPECT_EQ(smem_use(view).total(), 231424);
  EXPECT_EQ(max_stages(view, kSm90), 2);
  EXPECT_EQ(max_stages(view, kSm120), 0);
}

TEST(ExtendTiles, HopperTable) {
  struct Row {
    int Lq, Lv, m, n, stages, columns, p;
    int64_t bytes;
  };
  for (const Row& r : {Row{64, 64, 192, 128, 2, 1, 0, 92160}, Row{64, 64, 128, 192, 2, 1, 0, 116736}, Row{96, 96, 128, 128, 3, 1, 0, 174080},
                       Row{128, 128, 128, 128, 2, 1, 0, 165888}, Row{128, 128, 128, 128, 3, 1, 0, 231424}, Row{192, 128, 128, 128, 2, 1, 0, 215040},
                       Row{192, 128, 128, 96, 2, 1, 0, 174080}, Row{256, 256, 128, 80, 2, 1, 0, 231424}, Row{256, 256, 128, 64, 2, 1, 0, 198656},
                       Row{512, 512, 64, 64, 1, 2, 1, 206848}}) {
    TileConfig t = wgmma(r.Lq, r.Lv, r.m, r.n, r.stages);
    t.column_splits = r.columns, t.p_buffers = r.p;
    EXPECT_EQ(smem_use(t).total(), r.bytes) << r.Lq << "/" << r.Lv << " " << t.str();
    EXPECT_TRUE(check_tile(t, find_device("h200").value()).ok()) << check_tile(t, find_device("h200").value()).message();
    EXPECT_GE(max_stages(t, kSm90), r.stages);
  }
}

TEST(ExtendTiles, MmaSyncTable) {
  struct Row {
    int Lq, Lv, m, n, stages;
    bool alias;
    int64_t bytes, limit;
  };
  for (const Row& r :
       {Row{64, 64, 128, 128, 2, false, 82944, kSm80}, Row{64, 64, 128, 64, 2, false, 50176, kSm120}, Row{96, 96, 128, 64, 3, false, 99328, kSm80},
        Row{128, 128, 128, 64, 2, false, 99328, kSm120}, Row{192, 128, 128, 64, 2, false, 132096, kSm80}, Row{192, 128, 128, 32, 2, false, 91136, kSm120},
        Row{256, 256, 64, 64, 2, false, 164864, kSm80}, Row{256, 256, 64, 32, 2, false, 99328, kSm120}, Row{512, 512, 64, 32, 1, false, 132096, kSm80},
        Row{512, 512, 32, 32, 1, false, 99328, kSm120}, Row{576, 512, 64, 32, 2, true, 148480, kSm80}, Row{576, 512, 32, 16, 3, true, 93184, kSm120}}) {
    TileConfig t = tile(Mma::kMmaSync, r.Lq, r.Lv, r.m, r.n, r.stages);
    t.v_aliases_k = r.alias;
    EXPECT_EQ(smem_use(t).total(), r.bytes) << r.Lq << "/" << r.Lv << " " << t.str();
    EXPECT_LE(r.bytes, r.limit);
  }
}

TEST(ExtendTiles, RegistersOfTheTable) {
  EXPECT_EQ(register_use(wgmma(128, 128, 128, 128, 2)).total(), 64 + 64 + 32 + 40);
  TileConfig wide = wgmma(512, 512, 64, 64, 1);
  EXPECT_GT(register_use(wide).total(), register_limit(Mma::kWgmma));  // 256 of output alone: the columns must be split
  EXPECT_EQ(check_tile(wide, find_device("h200").value()).argument(), "registers");
  wide.column_splits = 2;
  EXPECT_EQ(register_use(wide).total(), 128 + 32 + 16 + 40);
  TileConfig features = wgmma(256, 256, 128, 64, 2);
  const int plain = register_use(features).total();
  features.window = features.cap = features.mask = true;
  EXPECT_EQ(register_use(features).total(), plain + 8 + 8 + 16);
}

TEST(ExtendTiles, WhatBoundsEachShape) {
  const DeviceCaps h200 = find_device("h200").value();
  // At head_dim 64 a 192 x 128 tile takes as long in exp2 as in the tensor cores.
  const Bounds d64 = clocks_per_tile(wgmma(64, 64, 192, 128, 2), h200);
  EXPECT_EQ(d64.tensor, 1536);
  EXPECT_EQ(d64.mufu, 1536);
  EXPECT_EQ(clocks_per_tile(wgmma(128, 128, 128, 128, 2), h200).tensor, 2048);
  EXPECT_STREQ(clocks_per_tile(wgmma(128, 128, 128, 128, 2), h200).limiter(), "L2");
  EXPECT_STREQ(clocks_per_tile(wgmma(128, 128, 192, 128, 2), h200).limiter(), "tensor cores");
  // With 64 rows a block, K and V of head_dim 512 bring it under half the peak; a shared V lifts that.
  TileConfig d512 = wgmma(512, 512, 64, 64, 1);
  d512.column_splits = 2, d512.p_buffers = 1;
  EXPECT_LT(clocks_per_tile(d512, h200).efficiency(), 0.5);
  TileConfig latent = wgmma(576, 512, 64, 64, 2);
  latent.v_aliases_k = true, latent.column_splits = 2, latent.p_buffers = 1;
  EXPECT_GT(clocks_per_tile(latent, h200).efficiency(), 0.8);
  // More rows never lower the bound.
  for (int m = 64; m < 256; m += 64) EXPECT_LE(bound_tflops(wgmma(128, 128, m, 128, 2), h200), bound_tflops(wgmma(128, 128, m + 64, 128, 2), h200));
  EXPECT_LE(bound_tflops(wgmma(128, 128, 192, 128, 2), h200), 4096 * 1.6e9 * 132 * 1e-12 * 1.0001);
}

TEST(ExtendTiles, StagesGrowWithTheLimit) {
  for (const int d : {64, 80, 96, 128, 192, 256, 512, 576})
    for (const int n : {16, 32, 64, 128}) {
      int last = 0;
      for (const int64_t limit : {int64_t{64} * 1024, kSm120, kSm80, kSm90}) {
        TileConfig t = wgmma(d, d, 64, n, 1);
        const int stages = max_stages(t, limit);
        EXPECT_GE(stages, last);
        last = stages;
        t.stages = stages;
        EXPECT_TRUE(stages == 0 || smem_use(t).total() <= limit);
        t.stages = stages + 1;
        EXPECT_TRUE(stages == 8 || smem_use(t).total() > limit);
      }
    }
}

// The mma.sync chooser over every head dimension, feature and chip, and with shared memory capped at other chips' sizes: what it picks fits.
TEST(ExtendTiles, ChooserFitsOrNamesTheLimit) {
  int fits = 0, refused = 0;
  for (const DeviceCaps& chip : known_devices()) {
    if (chip.kind == DeviceKind::kCpu) continue;
    for (const int64_t limit : {int64_t{16} * 1024, int64_t{64} * 1024, kSm120, kSm80, chip.smem_per_block}) {
      DeviceCaps caps = chip;
      caps.smem_per_block = std::min(limit, chip.smem_per_block);
      for (int Lq = 8; Lq <= 576; Lq += 8)
        for (const int Lv : {8, 64, 128, 256, 512, Lq})
          for (const bool features : {false, true}) {
            Problem p;
            p.Hq = p.Hkv = 1, p.Lq = Lq, p.Lv = Lv;
            if (features) p.sliding_window = 5, p.logit_cap = 30, p.has_mask = true, p.pool = DType::kE4m3;
            const Result<TileConfig> t = choose_mma_sync_tile(p, caps);
            if (t.ok()) {
              ++fits;
              EXPECT_LE(smem_use(t.value()).total(), caps.smem_per_block);
              EXPECT_LE(register_use(t.value()).total(), 255);
            } else {
              ++refused;
              EXPECT_EQ(t.status().code(), Code::kUnsupported);
              EXPECT_FALSE(t.status().argument().empty());
              EXPECT_LT(caps.smem_per_block, kSm120) << "refused at " << caps.smem_per_block << ": " << t.status().message();
            }
          }
    }
  }
  EXPECT_GT(fits, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace hyla::extend
