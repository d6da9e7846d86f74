// Energy: what is summed, what is said to be absent.
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "provenance/energy.h"

namespace mxt::provenance {
namespace {

class Energy : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    sources_.powercap = root_;
    sources_.nvml = sources_.rocm_smi = MXT_FAKE_GPU_ENERGY;
  }
  void TearDown() override { fs::remove_all(root_); }
  void package(int n, const std::string& microjoules, const std::string& name = "package") {
    const std::string at = root_ + "/intel-rapl:" + std::to_string(n);
    make_folders(at);
    write_file_atomic(at + "/name", name + "-0\n");
    write_file_atomic(at + "/max_energy_range_uj", "10000000000\n");
    write_file_atomic(at + "/energy_uj", microjoules + "\n");
  }
  static std::string method(const Json& j) { return j.at("method").get<std::string>(); }

  std::string root_ = testing::TempDir() + "mxt_powercap_" + std::to_string(getpid());
  EnergySources sources_;
};

TEST_F(Energy, OfProcessorsIsTheirCountersDifferenceThoughOneWraps) {
  package(0, "1000");
  package(1, "9999999000");
  package(2, "5", "psys");
  const EnergyMeter meter(sources_);
  package(0, "3600001000");
  package(1, "1000");
  const Json j = meter.reading();
  EXPECT_NEAR(j["kwh"].get<double>(), 3600.002 / 3.6e6, 1e-12);
  EXPECT_EQ(method(j), "rapl, 2 processor packages");
}

TEST_F(Energy, IsSaidToBeAbsentWhereNothingCounts) {
  const Json j = EnergyMeter(sources_).reading();
  EXPECT_TRUE(j["kwh"].is_null());
  EXPECT_NE(method(j).find("has no package counter"), std::string::npos) << method(j);
}

TEST_F(Energy, OfGpusIsTheirs) {
  const struct {
    std::vector<std::string> gpus;
    double kwh;
    std::string says;
  } kCases[] = {{{"0"}, 0.002, "nvml, 1 GPU; processors not counted"},
                {{"0", "1"}, 0.003, "nvml, 2 GPUs; "},
                {{"GPU-b"}, 0.001, "nvml, 1 GPU; "}};
  for (const auto& c : kCases) {
    sources_.gpus = c.gpus;
    const Json j = EnergyMeter(sources_).reading();
    EXPECT_NEAR(j["kwh"].get<double>(), c.kwh, 1e-9);
    EXPECT_TRUE(method(j).starts_with(c.says)) << method(j);
  }
  sources_.amd = true;
  sources_.gpus = {"0", "1"};
  const Json j = EnergyMeter(sources_).reading();
  EXPECT_NEAR(j["kwh"].get<double>(), 0.003, 1e-6);
  EXPECT_TRUE(method(j).starts_with("rocm_smi, 2 GPUs")) << method(j);
}

TEST_F(Energy, OfGpusAndProcessorsIsOneSum) {
  package(0, "0");
  sources_.gpus = {"0"};
  const EnergyMeter meter(sources_);
  package(0, "3600000000");
  const Json j = meter.reading();
  EXPECT_NEAR(j["kwh"].get<double>(), 0.003, 1e-9);
  EXPECT_EQ(method(j), "nvml, 1 GPU; rapl, 1 processor package");
}

// A sum without the GPU that computed would be a fraction of the truth.
TEST_F(Energy, IsNotKnownWhereOneOfTheGpusDoesNotSay) {
  package(0, "0");
  for (const char* gpu : {"7", "GPU-unknown", "-1"}) {
    sources_.gpus = {"0", gpu};
    for (const bool amd : {false, true}) {
      sources_.amd = amd;
      const Json j = EnergyMeter(sources_).reading();
      EXPECT_TRUE(j["kwh"].is_null());
      EXPECT_NE(method(j).find(gpu), std::string::npos) << method(j);
    }
  }
  sources_ = {root_, {"0"}, false, "libnothing-of-the-kind.so.1", ""};
  const Json j = EnergyMeter(sources_).reading();
  EXPECT_TRUE(j["kwh"].is_null());
  EXPECT_NE(method(j).find("libnothing-of-the-kind.so.1 cannot be opened"), std::string::npos) << method(j);
}

}  // namespace
}  // namespace mxt::provenance
