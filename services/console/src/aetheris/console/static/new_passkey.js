// Has the browser make a passkey for who is signed in, and hands on what it says of it.
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
const text = (data) => btoa(Array.from(new Uint8Array(data), (one) => String.fromCharCode(one)).join(""))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const form = document.getElementById("make");

const made = async ({ challenge, user, name }) => {
  const { id, type, rawId, response } = await navigator.credentials.create({ publicKey: {
    challenge: bytes(challenge),
    rp: { id: location.hostname, name: "Aetheris" },
    user: { id: bytes(user), name, displayName: name },
    pubKeyCredParams: [{ type: "public-key", alg: -7 }],
    authenticatorSelection: { residentKey: "preferred", userVerification: "required" },
    attestation: "none",
  } });
  const said = Object.fromEntries(["clientDataJSON", "attestationObject"].map((one) => [one, text(response[one])]));
  return JSON.stringify({ id, type, rawId: text(rawId), response: said });
};

form?.addEventListener("submit", async (event) => {
  if (form.elements.made.value !== "") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  event.submitter.disabled = true;
  try {
    form.elements.made.value = await made(form.dataset);
    form.requestSubmit();
  } catch (error) {
    document.getElementById("making").textContent = `Nothing was made: ${error.message}`;
  }
  event.submitter.disabled = false;
}, { capture: true });
