// What the server tells, fetched one path at a time. A failure is told to whoever asked; nothing is made up.

const KEY = "zerolayer-api-key";
const TIMEOUT_MS = 15000;

export class ApiError extends Error {
  constructor(path, status, message) {
    super(message);
    this.path = path;
    this.status = status;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

const said = async (answer) => {
  try {
    const body = await answer.json();
    if (Array.isArray(body.reasons)) return body.reasons.join("; ");
    return (body.error && body.error.message) || answer.statusText;
  } catch {
    return answer.statusText;
  }
};

// Relative paths: the page works behind a prefix as well.
export const get = async (path, { accept503 = false } = {}) => {
  const key = sessionStorage.getItem(KEY);
  let answer;
  try {
    answer = await fetch(path, {
      headers: key ? { "x-api-key": key } : {},
      signal: AbortSignal.timeout(TIMEOUT_MS),
      cache: "no-store",
    });
  } catch (error) {
    const why = error.name === "TimeoutError" ? `no answer within ${TIMEOUT_MS / 1000} s` : "the server does not answer";
    throw new ApiError(path, 0, why);
  }
  if (!answer.ok && !(accept503 && answer.status === 503)) {
    throw new ApiError(path, answer.status, `${answer.status} ${await said(answer)}`);
  }
  try {
    return await answer.json();
  } catch {
    throw new ApiError(path, answer.status, "the answer is not JSON");
  }
};
