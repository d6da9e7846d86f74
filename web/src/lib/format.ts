// Figures for people.
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return `${i === 0 ? n : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)} ${units[i]}`;
}
export function number(n: number, digits = 3): string {
  if (!Number.isFinite(n)) return "–";
  if (n === 0) return "0";
  const a = Math.abs(n);
  if (a >= 1e15 || a < 1e-3) return n.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return a >= 1000 ? Math.round(n).toLocaleString("en-US") : String(Number(n.toPrecision(digits + 1)));
}
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = seconds / 60;
  if (minutes < 90) return `${minutes.toFixed(minutes < 10 ? 1 : 0)} min`;
  const hours = minutes / 60;
  return hours < 48 ? `${hours.toFixed(1)} h` : `${(hours / 24).toFixed(1)} days`;
}
export function money(usd: number): string {
  return usd > 0 && usd < 0.01 ? `$${usd.toPrecision(2)}` : `$${usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}
export function energy(kwh: number): string {
  return kwh > 0 && kwh < 0.01 ? `${number(1000 * kwh)} Wh` : `${number(kwh)} kWh`;
}
// "2026-01-31T12:00:00Z" as the reader's clock has it.
export function when(utc: string): string {
  if (!utc) return "–";
  const d = new Date(utc), days = (Date.now() - d.getTime()) / 86400e3;
  const time = d.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  return days < 1 && d.getDate() === new Date().getDate() ? time : `${d.toLocaleDateString(undefined, { month: "short", day: "numeric" })}, ${time}`;
}
export function between(from: string, to: string): string {
  return from ? duration((to ? new Date(to).getTime() : Date.now()) / 1000 - new Date(from).getTime() / 1000) : "–";
}
export const percent = (x: number): string => `${x >= 0 ? "+" : "−"}${Math.abs(100 * x).toFixed(1)} %`;
