#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "train/metrics.h"

namespace mxt::train {
namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 16, kTop = 34, kBottom = 40;

std::string escape(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// A step of 1, 2 or 5 times a power of ten that gives about five marks.
double nice_step(double range) {
  const double raw = std::max(range, 1e-9) / 5, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

}  // namespace

std::string loss_curve_svg(const std::vector<StepMetrics>& log, const std::string& title) {
  double top = 0, bottom = 0, last = 1;
  bool any = false;
  auto see = [&](double v) {
    if (!std::isfinite(v)) return;
    top = any ? std::max(top, v) : v;
    bottom = any ? std::min(bottom, v) : v;
    any = true;
  };
  for (const auto& m : log) {
    see(m.loss);
    if (m.eval_loss) see(*m.eval_loss);
    last = std::max(last, static_cast<double>(m.step));
  }
  // Marks that a double tells apart: a step below its last bit would never pass the top.
  const double step = nice_step(std::max(top - bottom, 1e-12 * std::max(std::abs(top), std::abs(bottom))));
  const double lo = std::floor(bottom / step) * step, hi = std::max(std::ceil(top / step) * step, lo + step);
  auto x = [&](double s) { return kLeft + (kWidth - kLeft - kRight) * s / last; };
  auto y = [&](double v) { return kTop + (kHeight - kTop - kBottom) * (hi - v) / (hi - lo); };
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n<text x=\"{2}\" y=\"20\" font-size=\"14\">{3}: loss by "
      "step</text>\n",
      kWidth, kHeight, kLeft, escape(title));
  for (double v = lo; v <= hi + step / 2; v += step)
    s += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
        kLeft, y(v), kWidth - kRight, kLeft - 6, y(v) + 4, std::abs(v) < step / 1e3 ? 0 : v);
  for (double t = nice_step(last); t <= last; t += nice_step(last))
    s += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>\n", x(t), kHeight - 18, t);
  std::string raw, smooth, points;
  double average = 0, weight = 0;  // exponential, with the start corrected
  for (const auto& m : log) {
    if (!std::isfinite(m.loss)) continue;
    average = 0.9 * average + 0.1 * m.loss;
    weight = 0.9 * weight + 0.1;
    raw += fmt::format("{}{:.1f} {:.1f}", raw.empty() ? "M" : "L", x(static_cast<double>(m.step)), y(m.loss));
    smooth +=
        fmt::format("{}{:.1f} {:.1f}", smooth.empty() ? "M" : "L", x(static_cast<double>(m.step)), y(average / weight));
    if (m.eval_loss && std::isfinite(*m.eval_loss))
      points += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"#c2410c\"/>\n",
                            x(static_cast<double>(m.step)), y(*m.eval_loss));
  }
  s += fmt::format(
      "<path d=\"{}\" fill=\"none\" stroke=\"#93c5fd\"/>\n<path d=\"{}\" fill=\"none\" stroke=\"#1d4ed8\" "
      "stroke-width=\"2\"/>\n{}",
      raw, smooth, points);
  s += fmt::format("<text x=\"{}\" y=\"20\" text-anchor=\"end\" fill=\"#1d4ed8\">train{}</text>\n</svg>\n",
                   kWidth - kRight, points.empty() ? "" : " <tspan fill=\"#c2410c\">● held out</tspan>");
  return s;
}

}  // namespace mxt::train
