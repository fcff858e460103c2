// A link to a section that has moved to the chapter's appendix page leads there.
document.addEventListener("DOMContentLoaded", () => {
  const page = document.querySelector('meta[name="moved-anchors"]');
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (page && wanted && !document.getElementById(wanted)) location.replace(page.content + location.hash);
});
