// The login: a key of the API, for this tab.
import { logIn } from './api.js';
import { html, useState } from './lib.js';
import { Field, Problem } from './parts.js';

const HOW = document.documentElement.dataset.login;

const NoKeys = () => html`<p>This address has no keys. Set <code>keys_file</code> in <code>[http]</code> and make a key on the broker’s machine:</p>
  <pre>mqttcore keys new http_keys.toml me --scope view</pre>
  <p>Or reach the Unix socket in the data folder, which needs no key:</p>
  <pre>ssh -L 8090:/var/lib/mqttcore/http broker</pre>`;

export function Login({ why }) {
  const [error, fail] = useState(null);
  const [isBusy, wait] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const key = event.currentTarget.elements.key.value.trim();
    if (!key && HOW !== 'known') return;
    wait(true);
    await logIn(key || null).catch(fail);
    wait(false);
  };
  return html`<main class="login">
    <h1>mqttcore</h1>
    ${why && html`<p class="note" role="status">${why}</p>`}
    ${HOW === 'nobody' ? html`<${NoKeys} />` : html`<form onSubmit=${submit}>
      <${Field} label="Key" hint="It stays in this tab, and goes with it. Its scopes decide what you see and may do; view is needed.">
        <input name="key" type="password" autocomplete="off" spellcheck=${false} placeholder=${HOW === 'known' ? 'not needed over this socket' : 'mq_…'} />
      </${Field}>
      <${Problem} error=${error} />
      <div class="actions"><button type="submit" disabled=${isBusy}>Log in</button></div>
    </form>`}
  </main>`;
}
