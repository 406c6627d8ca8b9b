// LangChain.js createAgent under OpenInference.
// npm: langchain @langchain/core @langchain/openai @arizeai/openinference-instrumentation-langchain zod
//   @opentelemetry/sdk-trace-node @opentelemetry/resources @opentelemetry/exporter-trace-otlp-proto.
import { LangChainInstrumentation } from '@arizeai/openinference-instrumentation-langchain';
import * as callbacks from '@langchain/core/callbacks/manager';
import { ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { createAgent, createMiddleware, tool } from 'langchain';
import { z } from 'zod';
import { fetchPage, getWeather, PROMPT, runQuery, writeNotes } from './scenario.mjs';

const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'recorded-agent' }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
});
provider.register();
new LangChainInstrumentation({ tracerProvider: provider }).manuallyInstrument(callbacks);

const make = (name, description, field, execute) =>
  tool(async (input) => JSON.stringify(await execute(input)), {
    name,
    description,
    schema: z.object({ [field]: z.string() }),
  });
const caught = createMiddleware({
  name: 'caught',
  wrapToolCall: async (request, handler) => {
    try {
      return await handler(request);
    } catch (error) {
      return new ToolMessage({ content: `Error: ${error.message}`, tool_call_id: request.toolCall.id, status: 'error' });
    }
  },
});
const agent = createAgent({
  name: 'ops_agent',
  model: new ChatOpenAI({ model: 'stub-model', apiKey: 'stub', configuration: { baseURL: process.env.OPENAI_BASE_URL } }),
  tools: [
    make('get_weather', 'Get the current weather of a city.', 'city', getWeather),
    make('fetch_page', 'Fetch a web page.', 'url', fetchPage),
    make('run_query', 'Run a SQL query.', 'sql', runQuery),
  ],
  middleware: [caught],
});
await agent.invoke(
  { messages: [{ role: 'user', content: PROMPT }] },
  { recursionLimit: 100, metadata: { session_id: 'sess-lc-1', user_id: 'user-7' } },
);
await provider.forceFlush();
await provider.shutdown();
const packages = ['langchain', '@langchain/core', '@langchain/openai', '@arizeai/openinference-instrumentation-langchain'];
writeNotes(packages, { instrumentation: 'openinference', metadata_passed: { session_id: 'sess-lc-1', user_id: 'user-7' } });
