// Vercel's AI SDK against `mindxtrain serve`, through @ai-sdk/openai-compatible and @ai-sdk/openai (chat): tools with their results, schemas,
// streams. Each check asserts; 0 when all hold, 77 where a package or the weights are not here.
//
//     npm install ai @ai-sdk/openai @ai-sdk/openai-compatible zod
//     node tests/clients/ai_sdk.mjs [--binary FILE] [--model FILE] [--packages FOLDER]
import assert from "node:assert/strict";
import { need, withServer } from "./server.mjs";

const [{ generateText, streamText, embedMany, Output, tool, stepCountIs, jsonSchema }, { createOpenAICompatible }, { createOpenAI }, { z }] = await need("ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai", "zod");

const City = z.object({ name: z.string().max(12), population: z.number().int().min(0).max(99999999).nullable(), size: z.enum(["small", "large"]), sights: z.array(z.string().max(10)).max(2) });
const common = { temperature: 0, maxOutputTokens: 200, maxRetries: 0 };

async function checks(url) {
  const compatible = createOpenAICompatible({ name: "mindxtrain", baseURL: url + "/v1", apiKey: "none", supportsStructuredOutputs: true, includeUsage: true });
  const official = createOpenAI({ baseURL: url + "/v1", apiKey: "none" });
  for (const model of [compatible("smol"), official.chat("smol")]) {
    const asked = [];
    const get_weather = tool({
      description: "Weather of a city",
      inputSchema: z.object({ city: z.string().max(12), unit: z.enum(["C", "F"]) }),
      execute: async ({ city, unit }) => { asked.push(city); return { city, degrees: 12, unit }; },
    });
    const whole = await generateText({ model, ...common, prompt: "What is the capital of France?" });
    assert.ok(whole.text && whole.usage.totalTokens > 0 && ["stop", "length"].includes(whole.finishReason));
    console.log(model.provider, "chat:", whole.text);

    // A stream is the whole answer in pieces.
    const stream = streamText({ model, ...common, prompt: "What is the capital of France?" });
    let text = "", pieces = 0;
    for await (const part of stream.textStream) text += part, ++pieces;
    assert.equal(text, whole.text);
    assert.ok(pieces > 3 && (await stream.usage).outputTokens === whole.usage.outputTokens);

    // A tool-calling conversation: the first step calls, the tool runs, the second step answers with its result.
    const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: "tool", toolName: "get_weather" } : "none" });
    const called = await generateText({ model, ...common, prompt: "Weather in Oslo?", tools: { get_weather }, stopWhen: stepCountIs(2), prepareStep });
    assert.equal(called.steps.length, 2);
    assert.equal(called.steps[0].finishReason, "tool-calls");
    assert.equal(called.steps[0].toolResults[0].output.degrees, 12);
    assert.ok(called.text.length > 0);
    const streamed = streamText({ model, ...common, prompt: "Weather in Oslo?", tools: { get_weather }, stopWhen: stepCountIs(2), prepareStep });
    const kinds = new Set();
    let input = "";
    for await (const part of streamed.fullStream) {
      assert.notEqual(part.type, "error", JSON.stringify(part));
      kinds.add(part.type);
      if (part.type === "tool-input-delta") input += part.delta;
    }
    for (const kind of ["tool-input-start", "tool-input-end", "tool-call", "tool-result", "text-delta", "finish"]) assert.ok(kinds.has(kind), kind);
    assert.deepEqual(JSON.parse(input), called.steps[0].toolCalls[0].input);
    assert.ok((await streamed.text).length > 0);  // not the same: the template prints the call with its id
    console.log(model.provider, "tool call:", input, "of", asked.length);
    const named = await generateText({ model, ...common, prompt: "Weather?", tools: { get_weather }, toolChoice: { type: "tool", toolName: "get_weather" } });
    assert.equal(named.toolCalls[0].toolName, "get_weather");

    // Objects by zod's schema and by a plain one, whole and streamed.
    const city = await generateText({ model, ...common, prompt: "Tell me about Paris.", output: Output.object({ schema: City }) });
    City.parse(city.output);
    const plain = await generateText({ model, ...common, prompt: "Tell me about Paris.", output: Output.object({ schema: jsonSchema({ type: "object", properties: { n: { type: "integer", minimum: 1, maximum: 9 } }, required: ["n"], additionalProperties: false }) }) });
    assert.ok(plain.output.n >= 1 && plain.output.n <= 9);
    const growing = streamText({ model, ...common, prompt: "Tell me about Paris.", output: Output.object({ schema: City }) });
    let last;
    for await (const partial of growing.partialOutputStream) last = partial;
    assert.deepEqual(last, city.output);
    const choice = await generateText({ model, ...common, prompt: "Is Paris large?", output: Output.choice({ options: ["yes", "no"] }) });
    assert.ok(["yes", "no"].includes(choice.output));
    console.log(model.provider, "structured:", JSON.stringify(city.output));

    // Several turns, and an abort in the middle.
    const turns = await generateText({ model, ...common, system: "Be brief.", messages: [{ role: "user", content: "Hi" }, { role: "assistant", content: "Hello." }, { role: "user", content: [{ type: "text", text: "Bye" }] }] });
    assert.ok(turns.text);
    const control = new AbortController();
    const long = streamText({ model, ...common, maxOutputTokens: 1500, prompt: "Count for ever.", abortSignal: control.signal });
    let parts = 0;
    for await (const part of long.fullStream) if (++parts === 3) control.abort();
    assert.ok(parts < 1500);
    await assert.rejects(generateText({ model, ...common, temperature: 7, prompt: "x" }), (e) => e.statusCode === 400 && /temperature/.test(e.message));
  }
  const { embeddings } = await embedMany({ model: compatible.textEmbeddingModel("smol"), values: ["a cat", "a dog"] });
  assert.equal(embeddings.length, 2);
}

await withServer(checks);
