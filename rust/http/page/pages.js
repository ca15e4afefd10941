// Lists that the broker answers page by page.
import { address, get } from './api.js';
import { useEffect, useRef, useState } from './lib.js';

/** Items of a page. */
export const PAGE = 1000;

/**
 * The pages of a list that were read so far, of `PAGE` items unless `query` has a `limit`: state, and functions that read the next page, begin again, and do so
 * while the old items stay in sight without a sign of loading. Each item has its `index`.
 */
export function usePages(path, query) {
  const [state, set] = useState({ items: [], isLoading: true });
  const control = useRef(null);
  const load = async (after, isQuiet) => {
    const own = control.current;
    if (!isQuiet) set((old) => ({ ...old, isLoading: true, error: null }));
    try {
      const { items, next, partial } = await get(address(path, { limit: PAGE, ...query, after }), own.signal);
      if (own !== control.current) return;
      set((old) => {
        const before = after ? old.items : [];
        const added = items.map((item, index) => ({ ...item, index: before.length + index }));
        return { items: before.concat(added), next, partial, isLoading: false };
      });
    } catch (error) {
      if (own === control.current && !own.signal.aborted) set((old) => ({ ...old, isLoading: false, error }));
    }
  };
  const begin = (isQuiet) => {
    control.current?.abort();
    control.current = new AbortController();
    load(undefined, isQuiet);
  };
  const key = JSON.stringify([path, query]);
  useEffect(() => {
    begin(false);
    return () => control.current.abort();
  }, [key]);
  const more = () => !state.isLoading && !state.error && state.next && load(state.next);
  return [state, more, () => begin(false), () => begin(true)];
}
