/** The exchanges that tardis-dev knows. */

let known: ReadonlySet<unknown> | undefined;

/** Takes the library's own list. */
export function learnExchanges(list: unknown): void {
  if (Array.isArray(list)) known = new Set(list);
}

/** Whether all of them exist; undefined if there is no list. */
export function areKnown(exchanges: readonly string[]): boolean | undefined {
  return known && exchanges.every((exchange) => known?.has(exchange));
}
