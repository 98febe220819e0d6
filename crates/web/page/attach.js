// Files of this machine in the selection. A browser gives no paths, so that files of one name are told apart by their content.

/** The largest files that are compared byte by byte. */
const MOST_COMPARED = 32 * 1024 * 1024;

/**
 * Adds files to a selection. A file that is there already is not added again, one that was edited meanwhile takes the place
 * of its old version, and another one of the same name gets a number. Returns what the user should know.
 */
export async function attach(files, selection) {
  let note;
  for (const file of files) note = await attachOne(file, selection) ?? note;
  return note;
}

async function attachOne(file, selection) {
  for (let number = 1; ; number += 1) {
    const label = number === 1 ? file.name : numbered(file.name, number);
    const resource = { uri: `local:${encodeURIComponent(label)}`, label, name: label, mimeType: file.type || undefined, size: file.size, local: file };
    const known = selection.get(resource.uri)?.local;
    if (!known) {
      selection.add([resource]);
      return number === 1 ? undefined : `Another file of this name is attached as ${label}`;
    }
    if (await isSame(known, file)) return `${label} is attached already`;
    if (!await isReadable(known)) {
      selection.replace(resource);
      return `${label} is attached as it is now`;
    }
  }
}

/** A name with a number before its extension: `notes (2).md`. */
function numbered(name, number) {
  const dot = name.lastIndexOf('.');
  const end = dot > 0 ? dot : name.length;
  return `${name.slice(0, end)} (${number})${name.slice(end)}`;
}

async function isSame(known, file) {
  if (known.size !== file.size) return false;
  if (file.size > MOST_COMPARED) return known.lastModified === file.lastModified;
  try {
    const [one, other] = await Promise.all([known, file].map(async (each) => new Uint8Array(await each.arrayBuffer())));
    return one.every((byte, at) => byte === other[at]);
  } catch {
    return false;
  }
}

/** Whether a file is as it was when it was attached. The browser refuses to read one that has changed on the disk; of an empty one there is nothing to read. */
async function isReadable(file) {
  try {
    return (await file.slice(0, 1).arrayBuffer()).byteLength > 0;
  } catch {
    return false;
  }
}
