// Values that several parts of the page show, and hooks that read them.
import { useEffect, useState } from './lib.js';

/** A value with listeners. */
export class Store {
  #value;
  #listeners = new Set();

  constructor(value) {
    this.#value = value;
  }

  get value() {
    return this.#value;
  }

  set(value) {
    this.#value = value;
    for (const listener of [...this.#listeners]) listener(value);
  }

  /** Calls `listener` at each change; returns a function that ends this. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** The value of a store; the component is drawn again when it changes. */
export function useStore(store) {
  const [, draw] = useState(0);
  useEffect(() => store.listen(() => draw((count) => count + 1)), [store]);
  return store.value;
}

/** Loads with `load(signal)` again whenever one of `inputs` changes; an older answer never replaces a newer one. */
export function useLoad(load, inputs) {
  const [state, set] = useState({ loading: true });
  const [turn, again] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    set((old) => ({ ...old, loading: true }));
    load(control.signal).then(
      (data) => control.signal.aborted || set({ data, loading: false }),
      (error) => control.signal.aborted || set((old) => ({ data: old.data, error, loading: false })),
    );
    return () => control.abort();
  }, [...inputs, turn]);
  return { ...state, reload: () => again((count) => count + 1) };
}
