// The login: a key of the API, for this tab; or the user name and the password of an MQTT client, for 12 hours.
import { logIn, logInAs } from './api.js';
import { html, useState } from './lib.js';
import { Field, Problem } from './parts.js';

const HOW = document.documentElement.dataset.login.split(' ');

const NoKeys = () => html`<p>This address has no keys. Set <code>keys_file</code> in <code>[http]</code> and make a key on the broker’s machine:</p>
  <pre>mqttcore keys new http_keys.toml me --scope view</pre>
  <p>Or reach the Unix socket in the data folder, which needs no key:</p>
  <pre>ssh -L 8090:/var/lib/mqttcore/http broker</pre>`;

const KeyForm = () => html`<${Field} label="Key" hint="It is stored in this tab only. Its scopes decide what you can see and do; view is needed.">
  <input name="key" type="password" autocomplete="off" spellcheck=${false} placeholder=${HOW.includes('known') ? 'not needed over this socket' : 'mq_…'} />
</${Field}>`;

const PasswordForm = () => html`<${Field} label="User name">
    <input name="username" autocomplete="username" autocapitalize="none" spellcheck=${false} required />
  </${Field}>
  <${Field} label="Password" hint="Password of an MQTT user with the right to operate the broker. The login lasts 12 hours, in all tabs.">
    <input name="password" type="password" autocomplete="current-password" required />
  </${Field}>`;

export function Login({ why }) {
  const [error, fail] = useState(null);
  const [isBusy, wait] = useState(false);
  const [byPassword, choose] = useState(HOW.includes('password'));
  const submit = async (event) => {
    event.preventDefault();
    const { key, username, password } = event.currentTarget.elements;
    const secret = key?.value.trim();
    if (!byPassword && !secret && !HOW.includes('known')) return;
    wait(true);
    await (byPassword ? logInAs(username.value, password.value) : logIn(secret || null)).catch(fail);
    wait(false);
  };
  const other = () => {
    fail(null);
    choose(!byPassword);
  };
  return html`<main class="login">
    <h1>mqttcore</h1>
    ${why && html`<p class="note" role="status">${why}</p>`}
    ${HOW.includes('nobody') ? html`<${NoKeys} />` : html`<form onSubmit=${submit}>
      ${byPassword ? html`<${PasswordForm} />` : html`<${KeyForm} />`}
      <${Problem} error=${error} />
      <div class="actions"><button type="submit" disabled=${isBusy}>Log in</button>
        ${HOW.length > 1 && html`<button type="button" class="quiet" onClick=${other}>${byPassword ? 'Use a key' : 'Use a password'}</button>`}
      </div>
    </form>`}
  </main>`;
}
