// Preact and htm, under the names that all files of the page use.
import { h, render, Fragment } from './vendor/preact.js';
import htm from './vendor/htm.js';

export { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js';
export { render, Fragment };
export const html = htm.bind(h);
