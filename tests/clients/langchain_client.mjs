// LangChain's OpenAI adapter for JavaScript (@langchain/openai) against `mindxtrain serve`, as langchain_client.py does it for Python's. Each
// check asserts; 0 when all hold, 77 where a package or the weights are not here.
//
//     npm install @langchain/openai @langchain/core zod
//     node tests/clients/langchain_client.mjs [--binary FILE] [--model FILE] [--packages FOLDER]
import assert from "node:assert/strict";
import { need, withServer } from "./server.mjs";

const [{ ChatOpenAI, OpenAIEmbeddings }, { tool }, { HumanMessage, ToolMessage }, { z }] = await need("@langchain/openai", "@langchain/core/tools", "@langchain/core/messages", "zod");

const get_weather = tool(async ({ city, unit }) => `12 ${unit} in ${city}`, { name: "get_weather", description: "Weather of a city", schema: z.object({ city: z.string().max(12), unit: z.enum(["C", "F"]) }) });
const City = z.object({ name: z.string().max(12), population: z.number().int().min(0).max(99999999).nullable(), size: z.enum(["small", "large"]) });

async function checks(url) {
  const chat = new ChatOpenAI({ model: "smol", apiKey: "none", configuration: { baseURL: url + "/v1" }, temperature: 0, maxTokens: 200, maxRetries: 0 });
  const whole = await chat.invoke("What is the capital of France?");
  assert.ok(whole.content && whole.usage_metadata.total_tokens > 0);
  let text = "", pieces = 0;
  for await (const chunk of await chat.stream("What is the capital of France?")) text += chunk.content, ++pieces;
  assert.equal(text, whole.content);
  assert.ok(pieces > 3);
  console.log("chat:", text);

  for (const streamed of [false, true]) {
    const asking = chat.bindTools([get_weather], { tool_choice: "any", parallel_tool_calls: false });
    const history = [new HumanMessage("Weather in Oslo?")];
    let call;
    if (streamed)
      for await (const chunk of await asking.stream(history)) call = call === undefined ? chunk : call.concat(chunk);
    else
      call = await asking.invoke(history);
    assert.equal(call.tool_calls.length, 1);
    assert.equal(call.tool_calls[0].name, "get_weather");
    const result = await get_weather.invoke(call.tool_calls[0]);
    assert.ok(result instanceof ToolMessage && result.tool_call_id === call.tool_calls[0].id);
    const answer = await chat.bindTools([get_weather], { tool_choice: "none" }).invoke([...history, call, result]);
    assert.ok(answer.content);
    console.log("tool call:", JSON.stringify(call.tool_calls[0].args));
  }
  for (const method of ["jsonSchema", "functionCalling"])
    City.parse(await chat.withStructuredOutput(City, { method, name: "city" }).invoke("Tell me about Paris."));
  const batch = await chat.batch(["One", "Two", "Three"]);
  assert.equal(batch.length, 3);
  const vectors = await new OpenAIEmbeddings({ model: "smol", apiKey: "none", configuration: { baseURL: url + "/v1" } }).embedDocuments(["a cat", "a dog"]);
  assert.equal(vectors.length, 2);
}

await withServer(checks);
