// The answers of /coach/api.
export interface About { version: string; jobs: boolean; models: string[]; folder: string }
export interface Outline { project: string; run_name: string; description: string; hardware: string; gpus: number; model: string; method: string; seq_len: number; rows_per_step: number }
export interface RecipeEntry extends Partial<Outline> { name: string; head: string; trainable?: string /* "": here; else why not, and what to do */ }
export interface Issue { line: number; column: number; key: string; what: string; remedy: string }
export interface Check { valid: boolean; issues: Issue[]; hash?: string; off?: string[]; hints?: string[]; outline?: Outline }
export interface Plan {
  device: string; fits: boolean; peak_bytes: { host: number; device: number }; categories: Record<string, number>; available_bytes: number;
  micro_batch: number; rows_per_step: number; seq_len: number; recompute: string; steps: number | null; step_seconds: number; step_flops: number; tokens_per_second: number;
  seconds: number | null; energy_kwh: number | null; cost_usd: number | null; cost_per_1b_tokens_usd: number; measured: boolean; speed_from: string;
  prices: { file: string; date: string; usd_per_hour: number; source: string; usd_per_kwh: number; watts: number };
  changes_that_fit?: { change: string; bytes: number }[]; recompute_options: { name: string; activations: number; more_work: number }[];
}
export interface Finding { level: "ok" | "missing" | "note"; what: string; remedy: string }
export interface Doctor {
  cpu: { model: string; cores: number; vector: string; avx512_bf16: boolean; amx_bf16: boolean; onednn: string; onednn_isa: string };
  memory_bytes: { total: number; available: number }; disk_free_bytes: number; nvidia_driver: boolean; rocm: boolean;
  missing: { what: string; remedy: string }[]; findings: Finding[];
}
export interface Row { row: number; rows: number; tokens: number; targets: number; seq_len: number; sample?: boolean; documents: { tokens: number; trained: number; pieces: { text: string; trained: boolean; picture?: string }[] }[] }
export interface RunSummary {
  key: string; job: boolean; state: string; name: string; project: string; created: string; started: string; ended: string; attempts: number; stage: string; message: string; folder: string;
  metrics: Record<string, unknown>; tags: string[]; archived: boolean;
}
export interface Step { step: number; loss: number; lr: number; grad_norm: number; tokens: number; tok_s: number; tflops: number; mfu: number | null; memory_bytes: number; peak_memory_bytes: number; eval_loss?: number; [metric: string]: number | null | undefined }
export interface Samples {
  step: number; first: number; last: number; prompts: number;
  groups: { prompt: string; answers: number; list: { text: string; reward: number | null; rewards: Record<string, number>; advantage: number | null; tokens: number; turns?: { role: string; text: string }[] }[] }[];
}
export interface Run extends RunSummary {
  steps: number; last_step: Step | null; digests: Record<string, string>; has: Record<"plan" | "dataset" | "checkpoint" | "manifest" | "rollouts" | "log", boolean>; rewarded: boolean;
  recipe: string | null; can: Record<"stop" | "resume" | "try", boolean>;
}
export interface Comparison { runs: [RunSummary, RunSummary]; recipe: Record<string, [unknown, unknown]> | null; not_compared?: string; metrics: Record<string, [unknown, unknown]>; digests: Record<string, [unknown, unknown]> }
export interface KernelPlan {
  device: { kind: string; name: string; arch: string; driver: string; libraries: Record<string, string>; threads: number }; shapes: Record<string, number>; choices: Record<string, string>;
  candidates: Record<string, { algorithm: string; median_us: number; spread_us: number }[]>; measured: boolean; budget_s: number;
}
export interface Trial { run: string; state: "none" | "starting" | "ready" | "failed"; models: string[]; message: string }
export interface Verification {
  verified: boolean; here: boolean; whole: boolean; manifest_blake3: string; run: string | null; folder: string | null; signer: string | null; subjects: string[];
  findings: { field: string; what: string }[]; files: { subject: string; path: string; bytes: number; blake3: string; here: boolean }[]; receipt?: Record<string, unknown>;
}
