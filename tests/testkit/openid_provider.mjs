// An OpenID provider (npm's oidc-provider) with a robot and a person's program, whose tokens are JWTs for Aetheris.
// node openid_provider.mjs PORT KEYS_FILE; run where oidc-provider is installed.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [port, keysFile] = process.argv.slice(2);
const found = createRequire(`${process.cwd()}/`).resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(found));

const client = (id) => ({
  client_id: id, client_secret: `secret-of-${id}`, grant_types: ["client_credentials"], redirect_uris: [], response_types: [],
});
const said = {
  robot: { org: "acme", kind: "bot", groups: ["submitters"] },
  clerk: { org: "acme", kind: "human", groups: ["payouts", "staff"] },
  lost: { kind: "human", groups: ["payouts"] },
};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: Object.keys(said).map(client),
  jwks: JSON.parse(readFileSync(keysFile, "utf8")),
  ttl: { ClientCredentials: 600 },
  extraTokenClaims: (_ctx, token) => said[token.clientId],
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => "urn:aetheris",
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, resource) => ({
        scope: "use", audience: resource === "urn:aetheris" ? "aetheris" : resource, accessTokenFormat: "jwt",
        accessTokenTTL: 600, jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
