// Tells the secret of the address once. It is in the fragment, which browsers send nowhere.
const form = document.getElementById('enter');
if (form && location.hash.length > 1) {
  const secret = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, '', location.pathname);
  form.elements.secret.value = secret;
  form.submit();
}
// The page has times in UTC.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
for (const time of document.querySelectorAll('time')) {
  time.textContent = format.format(new Date(time.dateTime));
}
