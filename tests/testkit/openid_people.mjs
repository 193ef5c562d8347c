// An OpenID provider (npm's oidc-provider) for people: the code flow with PKCE for a public client, tokens that are JWTs for Aetheris.
// node openid_people.mjs PORT KEYS_FILE REDIRECT_URI; run where oidc-provider is installed. Whoever signs in is who he says.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [port, keysFile, redirect] = process.argv.slice(2);
const found = createRequire(`${process.cwd()}/`).resolve("oidc-provider");
const { default: Provider } = await import(pathToFileURL(found));

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "console", application_type: "native", token_endpoint_auth_method: "none", redirect_uris: [redirect],
    grant_types: ["authorization_code"], response_types: ["code"],
  }],
  jwks: JSON.parse(readFileSync(keysFile, "utf8")),
  cookies: { keys: ["of-a-test"] },
  pkce: { required: () => true },
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  extraTokenClaims: () => ({ org: "acme", kind: "human", groups: ["payouts"] }),
  scopes: ["openid", "use"],
  features: {
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => "urn:aetheris",
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: "use", audience: "aetheris", accessTokenFormat: "jwt", accessTokenTTL: 600, jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
