// An agent with the real OpenTelemetry JavaScript SDK: node javascript_exporter.mjs json|proto|grpc ENDPOINT SPANS SECONDS SESSION
import { createRequire } from "node:module";

const require = createRequire(process.env.NODE_PACKAGES + "/");
const { NodeTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-node");
const packages = {
  json: "@opentelemetry/exporter-trace-otlp-http",
  proto: "@opentelemetry/exporter-trace-otlp-proto",
  grpc: "@opentelemetry/exporter-trace-otlp-grpc",
};
const [protocol, endpoint, spans, seconds, session] = process.argv.slice(2);
const { OTLPTraceExporter } = require(packages[protocol]);
const url = protocol === "grpc" ? endpoint : `${endpoint}/v1/traces`;
const provider = new NodeTracerProvider({
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url }), { scheduledDelayMillis: 200 })],
});
const tracer = provider.getTracer("acceptance");
for (let number = 0; number < Number(spans); number += 1) {
  const span = tracer.startSpan("execute_tool look_up", {
    attributes: {
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "look_up",
      "gen_ai.tool.call.arguments": JSON.stringify({ number }),
      "gen_ai.tool.call.result": `row ${number}`,
      "gen_ai.conversation.id": session,
    },
  });
  span.end();
  await new Promise((resolve) => setTimeout(resolve, (1000 * Number(seconds)) / Number(spans)));
}
await provider.forceFlush();
await provider.shutdown();
