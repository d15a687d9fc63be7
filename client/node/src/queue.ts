/** A FIFO queue whose operations cost the same at any length; `shift` on a long array moves every element. */
export class Queue<Entry> {
  private entries: (Entry | undefined)[] = [];
  private head = 0;

  get length(): number {
    return this.entries.length - this.head;
  }

  get first(): Entry | undefined {
    return this.entries[this.head];
  }

  at(index: number): Entry | undefined {
    return this.entries[this.head + index];
  }

  push(entry: Entry): void {
    this.entries.push(entry);
  }

  /** Adds an entry before all others. */
  unshift(entry: Entry): void {
    if (this.head) {
      this.head -= 1;
      this.entries[this.head] = entry;
    } else {
      this.entries.unshift(entry);
    }
  }

  shift(): Entry | undefined {
    const entry = this.entries[this.head];
    if (this.head < this.entries.length) {
      this.entries[this.head] = undefined;
      this.head += 1;
    }
    if (this.head * 2 >= this.entries.length) {
      this.entries = this.entries.slice(this.head);
      this.head = 0;
    }
    return entry;
  }
}
