// The form for a new ban.
import { count } from './format.js';
import { html } from './lib.js';
import { change, Dialog, Field } from './parts.js';

const KINDS = [['client_id', 'client identifier'], ['client_id_regex', 'client identifiers (regular expression)'], ['username', 'user'], ['ip', 'address or network']];
const DURATIONS = [['3600', '1 hour'], ['86400', '1 day'], ['604800', '1 week'], ['', 'until it is lifted']];

/** How long a ban lasts, and why. */
export const BanTerms = () => html`<${Field} label="For"><select name="duration">${DURATIONS.map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></${Field}>
  <${Field} label="Reason" hint="For operators; clients do not see it."><input name="why" autocomplete="off" /></${Field}>`;

/** The members of a request for `BanTerms`. */
export const banTerms = ({ duration, why }) => ({ why: why.value, ...(duration.value && { duration_s: Number(duration.value) }) });

export function BanForm({ kind = 'client_id', value = '', close, done }) {
  const submit = async (event) => {
    event.preventDefault();
    const { elements } = event.currentTarget;
    const ban = { kind: elements.kind.value, value: elements.value.value, ...banTerms(elements) };
    close();
    const tells = (answer) => `Banned; ${answer.disconnected === 1 ? '1 client was' : `${count(answer.disconnected)} clients were`} disconnected.`;
    if (await change('POST', '/bans', ban, tells)) done();
  };
  return html`<${Dialog} title="Ban clients" close=${close}>
    <form onSubmit=${submit}>
      <${Field} label="What"><select name="kind" defaultValue=${kind}>${KINDS.map(([name, title]) => html`<option value=${name} selected=${name === kind}>${title}</option>`)}</select></${Field}>
      <${Field} label="Value"><input name="value" required defaultValue=${value} autocomplete="off" spellcheck=${false} /></${Field}>
      <${BanTerms} />
      <div class="actions"><button type="button" onClick=${close}>Cancel</button><button type="submit" class="danger">Ban</button></div>
    </form>
  </${Dialog}>`;
}
