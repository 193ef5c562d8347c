// The refund flow of tests/testkit/refund_flow.py, on the TypeScript SDK: node refund_flow.mjs TAG COMMAND… | TAG URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [tag, command, ...args] = process.argv.slice(2);
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("AETHERIS_") || name === "PATH"));
const client = new Client({ name: "refunds", version: "1" });
const headers = { Authorization: `Bearer ${process.env.AETHERIS_TOKEN}` };
const transport = command.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(command), { requestInit: { headers } })
  : new StdioClientTransport({ command, args, env });
await client.connect(transport);
for (const what of ["refund", "mail"]) {
  for (;;) {
    const answer = await client.callTool({ name: "issue", arguments: { text: `${what} ${tag}`, hold: true } });
    if (!answer.isError && !answer._meta?.["io.aetheris/pending"]) break;
    await new Promise((wake) => setTimeout(wake, 200));
  }
}
console.log("done");
await client.close();
