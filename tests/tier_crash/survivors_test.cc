// The model that the crash tests believe.
#include "tier_crash/survivors.h"

#include <gtest/gtest.h>

namespace cairn::testing {
namespace {

using What = KillLogEntry::What;
using Fate = Survivors::Fate;

void note_all(Survivors& survivors, std::initializer_list<KillLogEntry> entries) {
  for (const KillLogEntry& entry : entries) EXPECT_EQ(survivors.note(entry), "");
}

TEST(SurvivorsTest, AnAcknowledgedPutMustBeThereUntilItIsErasedOrLost) {
  Survivors survivors(Survivors::Durable::kWhenAcknowledged);
  EXPECT_EQ(survivors.fate(7), Fate::kNeverPut);
  note_all(survivors, {{What::kOpened, 5}, {What::kPut, 7}});
  EXPECT_EQ(survivors.fate(7), Fate::kMayBeThere);
  note_all(survivors, {{What::kAcknowledged, 7}});
  EXPECT_EQ(survivors.fate(7), Fate::kMustBeThere);
  note_all(survivors, {{What::kErase, 7}});
  EXPECT_EQ(survivors.fate(7), Fate::kMayBeThere);
  note_all(survivors, {{What::kFlushed, 0}});
  EXPECT_EQ(survivors.fate(7), Fate::kMustBeGone);
  note_all(survivors, {{What::kPut, 7}, {What::kAcknowledged, 7}, {What::kLost, 7}});
  EXPECT_EQ(survivors.fate(7), Fate::kMayBeThere);
}

TEST(SurvivorsTest, APutThatWasErasedBeforeItWasAcknowledgedNeedNotBeThere) {
  Survivors survivors(Survivors::Durable::kWhenAcknowledged);
  note_all(survivors, {{What::kPut, 7}, {What::kErase, 7}, {What::kAcknowledged, 7}});
  EXPECT_EQ(survivors.fate(7), Fate::kMayBeThere);
}

TEST(SurvivorsTest, BehindRamAPutMustBeThereOnceItIsFlushed) {
  Survivors survivors(Survivors::Durable::kWhenFlushed);
  note_all(survivors, {{What::kPut, 7}, {What::kAcknowledged, 7}});
  EXPECT_EQ(survivors.fate(7), Fate::kMayBeThere);
  note_all(survivors, {{What::kFlushed, 0}});
  EXPECT_EQ(survivors.fate(7), Fate::kMustBeThere);
}

TEST(SurvivorsTest, WhatWasNotFoundAfterARestartNeedNotBeThereLater) {
  Survivors survivors(Survivors::Durable::kWhenAcknowledged);
  note_all(survivors, {{What::kPut, 7}, {What::kPut, 8}, {What::kAcknowledged, 7}, {What::kAcknowledged, 8}});
  survivors.restart({{7, true}, {8, false}});
  EXPECT_EQ(survivors.fate(7), Fate::kMustBeThere);
  EXPECT_EQ(survivors.fate(8), Fate::kMayBeThere);
}

TEST(SurvivorsTest, LogsThatBreakAPromiseAreRefused) {
  Survivors survivors(Survivors::Durable::kWhenAcknowledged);
  note_all(survivors, {{What::kPut, 7}});
  EXPECT_NE(survivors.note({What::kOpened, 7}), "") << "a key handed out twice";
  EXPECT_NE(survivors.note({What::kWrong, 7}), "");
  EXPECT_NE(survivors.note({What::kUnexpected, 1}), "");
  EXPECT_NE(survivors.note({What::kLost, 99}), "") << "never put";
}

}  // namespace
}  // namespace cairn::testing
