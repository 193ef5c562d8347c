// Asks a passkey to sign what a form says, before it is sent: the form has the challenge of each of its answers.
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
const text = (data) => btoa(Array.from(new Uint8Array(data), (one) => String.fromCharCode(one)).join(""))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const form = document.getElementById("answer");

const signed = async (challenge) => {
  const asked = { challenge: bytes(challenge), rpId: location.hostname, userVerification: "required" };
  const { response } = await navigator.credentials.get({ publicKey: asked });
  return JSON.stringify(Object.fromEntries(
    ["clientDataJSON", "authenticatorData", "signature"].map((name) => [name, text(response[name])])));
};

form?.addEventListener("submit", async (event) => {
  const pressed = event.submitter, challenge = form.dataset[pressed?.value];
  if (challenge === undefined || form.elements.assertion.value !== "") return;
  event.preventDefault();
  event.stopImmediatePropagation();
  pressed.disabled = true;
  const said = document.getElementById("signs");
  try {
    form.elements.assertion.value = await signed(challenge);
    pressed.disabled = false;
    form.requestSubmit(pressed);
  } catch (error) {
    said.textContent = `Nothing was sent: ${error.message}`;
    pressed.disabled = false;
  }
}, { capture: true });
